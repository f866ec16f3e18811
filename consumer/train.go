package consumer

import (
	"context"

	"github.com/einmal-go/einmal/internal/turn"
)

// Grouper is implemented by links that handle several messages at once better than one after the other: a Dedup whose
// store puts them into one transaction. Group is the most of them that it can use, 0 or 1 for none. In KeyOrder and
// Unordered the default of Topic.Workers follows it. In PartitionOrder and KeyOrder it is how many consecutive messages
// of a partition or key are in work at once: they take effect in their order.
type Grouper interface {
	Group() int
}

// GroupReporter is implemented by Groupers that tell what has become of their groups. ok is false if they make none.
type GroupReporter interface {
	GroupStats() (stats GroupStats, ok bool)
}

// GroupStats is what a store has done with the messages that it puts into one transaction. Counts only grow; topics
// that share a store have the same ones.
type GroupStats struct {
	Transactions int64 // that were committed
	Calls        int64 // messages that they answered
	RolledBack   int64 // groups whose messages came again, in smaller groups
	Size         int   // the most messages in the next group
	Side         int   // the most transactions side by side now; they are single ones if Size is 1
	Contended    bool  // groups are held small, one at a time, because of deadlocks or serialization failures
	Single       bool  // groups do not pay, since functions wait or fail: messages have transactions of their own, until groups pay again
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

// trainLength is how many messages of a partition, or of a key in KeyOrder, are in work at once. It is 1 unless exactly
// one link makes groups: of two, the second one would have to wait for the end of the first one's message. It is 1 with
// a CrashLoop too: a handler that ends the process would have ended it for all of them.
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
	if t.order == Unordered || groupers != 1 {
		return 1
	}
	return length
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

// releaseTrains cancels messages of a claim that starts none any more, which wait for one that is not in work: they
// would wait until the time to drain is over. It is called under the lock.
func (cl *claim) releaseTrains() {
	runs := map[*turn.Lane]map[uint64]bool{}
	for _, it := range cl.running {
		if t := it.trainTurn; t != nil {
			if runs[t.Lane()] == nil {
				runs[t.Lane()] = map[uint64]bool{}
			}
			runs[t.Lane()][t.Number()] = true
		}
	}
	gaps := map[*turn.Lane]uint64{}
	for lane, numbers := range runs {
		gap := lane.Next()
		for numbers[gap] {
			gap++
		}
		gaps[lane] = gap
	}
	for _, it := range cl.running {
		if t := it.trainTurn; t != nil && t.Number() > gaps[t.Lane()] {
			it.current.ctx.cancel(errDrainOver)
		}
	}
}
