package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/offsets"
)

// claim is the hold of this process on one partition, from its assignment to its end: an epoch. It has a queue and a
// tracker of its own, and nothing that belongs to it moves an offset once it is fenced, even if the same partition
// comes back.
type claim struct {
	run       *running
	group     sarama.ConsumerGroup
	topic     *topic
	partition int32
	topicID   TopicID
	session   sarama.ConsumerGroupSession
	source    sarama.ConsumerGroupClaim
	first     int64  // where the claim begins
	committed int64  // when the claim began; -1 if nothing was, or it is not known
	note      string // that goes with what is committed, see notePartitions
	since     time.Time

	ctx    context.Context // of the handlers: not the session's, it outlives the session by the drain
	cancel context.CancelCauseFunc
	leave  context.CancelCauseFunc // ends the membership

	mu       sync.Mutex
	queue    *queue
	free     freelist
	tracker  offsets.Tracker
	carrying carrying
	open     openItems
	running  runningItems
	parked   map[*item]*time.Timer
	parkings int64       // so far
	waiting  [seats]bool // for a worker, or the place of a rider
	held     int         // messages that are not finished
	bytes    int         // of these
	marked   int64
	settled  time.Time                     // when settle was last called
	reported struct{ messages, bytes int } // to the load
	fetched  time.Time                     // when the last messages came
	progress time.Time                     // when a message last finished
	lastErr  error
	fetchErr error     // since which nothing was fetched
	unread   time.Time // when the first of these came

	fetchErrAt time.Time // when the last of these came

	reach      int64 // the offset behind all that was delivered
	quarantine quarantine

	transaction openTransaction // that holds the partition back

	commits commits

	logEnd   int64 // as the broker told while fetches did not
	endKnown bool  // it did
	endLost  bool  // it did not when it was asked

	pausedBy Limit     // "" if it is not
	pausedAt time.Time // or when countPause was last called
	holdup   holdup

	userPause *Pause    // nil if no user has paused the partition
	resumedAt time.Time // when that was last over

	revoked time.Time     // when it became known that the partition goes
	stopped bool          // no message starts any more
	idle    chan struct{} // closed when stopped and nothing runs
	fenced  bool          // no mark is made any more
}

func newClaim(r *running, group sarama.ConsumerGroup, t *topic, id TopicID, session sarama.ConsumerGroupSession,
	source sarama.ConsumerGroupClaim) *claim {
	ctx, cancel := context.WithCancelCause(r.handlers)
	now := time.Now()
	return &claim{
		run: r, group: group, topic: t, partition: source.Partition(), topicID: id, session: session, source: source,
		since: now,
		ctx:   ctx, cancel: cancel,
		first:    source.InitialOffset(),
		queue:    newQueue(t.order, t.train),
		parked:   map[*item]*time.Timer{},
		marked:   -1,
		progress: now,
		idle:     make(chan struct{}),
	}
}

// pump moves messages from sarama into the queue until the session ends or the partition is closed. It never blocks on
// a handler: sarama serves all partitions of a broker in turn, so a reader that waits holds up the others.
func (cl *claim) pump(messages <-chan *sarama.ConsumerMessage) {
	done := cl.session.Context().Done()
	for {
		select {
		case <-done:
			return
		case rec, ok := <-messages:
			if !ok || !cl.accept(rec, messages) {
				return
			}
		}
	}
}

// accept takes rec and whatever else is ready under one lock. It reports whether pumping can go on.
func (cl *claim) accept(rec *sarama.ConsumerMessage, messages <-chan *sarama.ConsumerMessage) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.fetched, cl.unread, cl.fetchErr, cl.endLost = time.Now(), time.Time{}, nil, false
	more := len(messages)
	ok := cl.add(rec)
	for ; ok && more > 0; more-- {
		rec, open := <-messages
		ok = open && cl.add(rec)
	}
	cl.report()
	cl.dispatch()
	cl.pauseIfOver()
	return ok
}

func (cl *claim) add(rec *sarama.ConsumerMessage) bool {
	if err := cl.tracker.Deliver(rec.Offset); err != nil {
		// The log went back under a running fetch. Ending the session reads again from what is committed: nothing is lost.
		cl.run.log.Error("einmal: offsets went backwards, the partition is read again from its committed offset",
			cl.attrs(slog.Any("error", err))...)
		return false
	}
	it := cl.free.item()
	cl.reach = rec.Offset + 1
	it.rec, it.offset, it.fetched = rec, rec.Offset, cl.fetched
	cl.remember(it)
	cl.open.add(it)
	cl.held++
	cl.bytes += it.size()
	cl.queue.push(it)
	if cl.topic.order == KeyOrder && rec.Key == nil {
		cl.tellNoKey(rec.Offset)
	}
	return true
}

// cannotRead notes an error of the fetches of the partition.
func (cl *claim) cannotRead(err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Now()
	if cl.unread.IsZero() || now.Sub(cl.fetchErrAt) > fetchErrFresh {
		cl.unread = now
	}
	cl.fetchErr, cl.fetchErrAt = err, now
}

// fetchErrFresh is how long an error says something about the present: sarama fetches again, and fails again, twice a
// second. That an empty partition can be read again is told by nothing.
const fetchErrFresh = 30 * time.Second

// dispatch starts what may run now, as far as there are workers. It is called under the lock.
func (cl *claim) dispatch() {
	for s := range seats {
		for cl.begins() && !cl.waiting[s] && cl.queue.hasReady(s) && cl.topic.places(s).acquire(cl) {
			w, now := cl.topic.places(s), time.Now()
			go w.run(cl, cl.start(w, now, now))
		}
	}
}

// begins reports whether messages may be taken into work. It is called under the lock.
func (cl *claim) begins() bool { return !cl.stopped && cl.userPause == nil }

// start takes the next message into work, for a worker that came to this claim at turn. It is called under the lock.
func (cl *claim) start(w *workers, turn, now time.Time) *item {
	if !cl.begins() {
		return nil
	}
	it := cl.queue.next(w.seat)
	if it == nil {
		return nil
	}
	it.turn, it.started, it.overrun, it.gaveUp = turn, now, false, false
	if it.first.IsZero() {
		it.first = now
	}
	it.current = cl.free.attempt()
	it.current.ctx.parent, it.current.ctx.msg = it.turned(cl.ctx), &it.current.msg //nolint:fatcontext // it is new
	cl.running.add(it)
	return it
}

// resumed is called by a worker that comes to this claim because it waited.
func (cl *claim) resumed(w *workers) *item {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.waiting[w.seat] = false
	now := time.Now()
	it := cl.start(w, now, now)
	if it != nil {
		cl.dispatch() // a place may have become free since this claim was taken from those that wait
	}
	return it
}

// ref names the partition for Pause and Resume.
func (cl *claim) ref() map[string][]int32 {
	return map[string][]int32{cl.topic.name: {cl.partition}}
}

func (cl *claim) attrs(more ...any) []any {
	return append([]any{slog.String(attrTopic, cl.topic.name), partitionAttr(cl.partition)}, more...)
}
