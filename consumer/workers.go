package consumer

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
)

// DefaultWorkers is what Topic.Workers is by default in KeyOrder and Unordered: with a transaction per message, 16 to
// 32 are right for a PostgreSQL on two cores, and fit into a pool of that size.
const DefaultWorkers = 16

// workers bounds how many messages of a topic this process handles at once, over all its partitions. A worker is a
// goroutine that holds a place; it moves from message to message and from claim to claim, and ends when nothing is
// ready.
type workers struct {
	seat  seat // of what it handles
	total int  // places

	contended atomic.Bool // claims are waiting

	mu      sync.Mutex
	free    int
	waiting []*claim // that had something ready when no place was free, in order
}

func newWorkers(t Topic) *workers {
	w := &workers{free: t.Workers}
	if t.Workers == 0 {
		w.free = DefaultWorkers
		if t.Order == PartitionOrder {
			w.free = math.MaxInt // one per partition, which the queue sees to
		}
	}
	w.total = w.free
	return w
}

// newRiders returns the places of messages that wait behind one that is in work, as many as there are workers.
func newRiders(w *workers) *workers {
	return &workers{seat: rider, total: w.total, free: w.total}
}

// places are those of such seats.
func (t *topic) places(s seat) *workers {
	if s == rider {
		return t.riders
	}
	return t.workers
}

// acquire takes a place, or notes that cl waits for one. It is called under cl's lock.
func (w *workers) acquire(cl *claim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free == 0 {
		w.enqueue(cl)
		return false
	}
	w.free--
	return true
}

// wait notes that cl has something ready. It is called under cl's lock, by a worker that then looks for the next claim.
func (w *workers) wait(cl *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue(cl)
}

func (w *workers) enqueue(cl *claim) {
	if !cl.waiting[w.seat] {
		cl.waiting[w.seat] = true
		w.waiting = append(w.waiting, cl)
		w.contended.Store(true)
	}
}

// take removes the claim that has waited longest, or gives the place back if there is none.
func (w *workers) take() *claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.free++
		return nil
	}
	cl := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	w.contended.Store(len(w.waiting) > 0)
	return cl
}

// next returns the next message for a worker whose claim has none, or nil: then its place is given back.
func (w *workers) next() (*claim, *item) {
	for {
		cl := w.take()
		if cl == nil {
			return nil, nil
		}
		if it := cl.resumed(w); it != nil {
			return cl, it
		}
	}
}

// run handles it, and then whatever may run next, until there is nothing.
func (w *workers) run(cl *claim, it *item) {
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine with runtime.Goexit
			go w.after(cl, it)
		}
	}()
	for it != nil {
		if next := cl.finish(w, it, cl.attempt(it)); next != nil {
			it = next
			continue
		}
		cl, it = w.next()
	}
	returned = true
}

// after goes on in place of a worker that was ended.
func (w *workers) after(cl *claim, it *item) {
	next := cl.finish(w, it, exited(&it.current.msg))
	if next == nil {
		cl, next = w.next()
	}
	if next != nil {
		w.run(cl, next)
	}
}

// String is their number, for the log.
func (w *workers) String() string {
	if w.total == math.MaxInt {
		return "one for each partition"
	}
	return strconv.Itoa(w.total)
}

// workersText says how many messages of the topic are handled at once. In PartitionOrder that many would mislead: a
// partition has one worker, whatever Workers is.
func (t *topic) workersText() string {
	if t.order == PartitionOrder && t.workers.total != math.MaxInt {
		return "one for each partition, at most " + t.workers.String()
	}
	return t.workers.String()
}
