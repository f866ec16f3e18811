package consumer

import (
	"context"

	"github.com/einmal-go/einmal/internal/turn"
)

// Grouper is implemented by links that handle several messages at once better than one after the other: a Dedup whose store puts them
// into one transaction. Group is the most of them that it can use, 0 or 1 for none. In KeyOrder and Unordered the default of
// Topic.Workers follows it. In PartitionOrder it is how many consecutive messages are in work at once: they take effect in their order.
type Grouper interface {
	Group() int
}

// GroupReporter is implemented by Groupers that tell what has become of their groups. ok is false if they make none.
type GroupReporter interface {
	GroupStats() (stats GroupStats, ok bool)
}

// GroupStats is what a store has done with the messages that it puts into one transaction. Counts only grow; topics that share a store
// have the same ones.
type GroupStats struct {
	Transactions int64 // that were committed
	Calls        int64 // messages that they answered
	RolledBack   int64 // groups whose messages came again, in smaller groups
	Size         int   // the most messages in the next group
	Side         int   // the most transactions side by side now; they are single ones if Size is 1
	Contended    bool  // groups are held small, one at a time, because of deadlocks or serialization failures
}

// groupStats is that of the first of the topic's links that has one, or nil.
func (t *topic) groupStats() *GroupStats {
	for _, h := range t.links {
		if r, ok := h.(GroupReporter); ok {
			if stats, ok := r.GroupStats(); ok {
				return &stats
			}
		}
	}
	return nil
}

// grouped is the largest Group of the topic's links.
func (t *topic) grouped() int {
	most := 0
	for _, h := range t.links {
		if g, ok := h.(Grouper); ok {
			most = max(most, g.Group())
		}
	}
	return most
}

// trainLength is how many messages of a partition are in work at once in PartitionOrder. It is 1 unless exactly one link makes groups:
// of two, the second one would have to wait for the end of the first one's message. It is 1 with a CrashLoop too: a handler
// that ends the process would have ended it for all of them.
func (t *topic) trainLength() int {
	length, groupers := 1, 0
	for _, h := range t.links {
		if g, ok := h.(Grouper); ok && g.Group() > 1 {
			length = g.Group()
			groupers++
		}
		if l, ok := h.(Linker); ok && l.Link() == LinkCrashLoop {
			return 1
		}
	}
	if t.order != PartitionOrder || groupers != 1 {
		return 1
	}
	return length
}

// train is the lane of a partition whose messages are handed out several at a time. They are in work side by side, and take effect in their
// order: whatever puts their effects into transactions looks at their turns. A message that failed keeps its turn until it has
// finished: those behind it that are in work wait for it, no other one is handed out.
type train struct {
	length int
	order  turn.Lane
	out    int   // handed out and not finished
	parked int   // of these
	again  *item // parked ones that may run now, the oldest first

	first, last *item // not handed out
}

func (tr *train) push(it *item) {
	if tr.first == nil {
		tr.first, tr.last = it, it
		return
	}
	tr.last.next = it
	tr.last = it
}

func (tr *train) hasReady() bool {
	return tr.again != nil || tr.first != nil && tr.parked == 0 && tr.out < tr.length
}

// next returns the message that may be handled now, or nil.
func (tr *train) next() *item {
	if it := tr.again; it != nil {
		tr.again, it.next = it.next, nil
		return it
	}
	if !tr.hasReady() {
		return nil
	}
	it := tr.first
	tr.first, it.next = it.next, nil
	if tr.first == nil {
		tr.last = nil
	}
	tr.out++
	it.trainTurn = tr.order.Join()
	return it
}

// finished lets the message behind a running one take effect.
func (tr *train) finished(it *item) {
	tr.out--
	it.trainTurn.Settle()
}

// park says that a running message waits for its next attempt.
func (tr *train) park() { tr.parked++ }

// unpark lets a message run again.
func (tr *train) unpark(it *item) {
	tr.parked--
	at := &tr.again
	for *at != nil && (*at).offset < it.offset {
		at = &(*at).next
	}
	it.next, *at = *at, it
}

// waits reports whether a message is in work that cannot begin yet, because another one stands before it.
func (it *item) waits() bool { return !it.trainTurn.First() }

// turned returns ctx with the turn of the message.
func (it *item) turned(ctx context.Context) context.Context {
	if it.trainTurn == nil {
		return ctx
	}
	return turn.With(ctx, it.trainTurn)
}

// releaseTrain cancels messages of a claim that starts none any more, which wait for one that is not in work: they would wait until
// the time to drain is over. It is called under the lock.
func (cl *claim) releaseTrain() {
	if cl.queue.train == nil {
		return
	}
	runs := map[uint64]bool{}
	for _, it := range cl.running {
		runs[it.trainTurn.Number()] = true
	}
	gap := cl.queue.train.order.Next()
	for runs[gap] {
		gap++
	}
	for _, it := range cl.running {
		if it.trainTurn.Number() > gap {
			it.current.ctx.cancel(errDrainOver)
		}
	}
}
