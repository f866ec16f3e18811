package consumer

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Totals counts what has happened to a Consumer since New.
type Totals struct {
	Rebalances    int64 // assignments that came, the first one included
	ShortSessions int64 // that failed, or ended within 10 s, see Hooks.ShortSession
	Topics        []TopicTotals
}

// TopicTotals counts what has happened to the partitions of one topic since New.
type TopicTotals struct {
	Topic      string
	Assigned   int64         // partitions that came
	Drained    int64         // that went
	DrainTime  time.Duration // between the news that they go and their end
	DrainsCut  int64         // whose handlers were cancelled because the time to drain was over: their messages are delivered again
	OutOfRange int64         // whose committed offset was not in the log any more
	Paused     time.Duration // for which fetching was paused because a limit was reached, added up over the partitions; up to a second old
	Groups     *GroupStats   // of the store that puts its messages into one transaction, nil if there is none
}

// sessionTotals is safe for concurrent use.
type sessionTotals struct {
	mu                sync.Mutex
	rebalances, short int64
}

func (t *sessionTotals) rebalanced() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rebalances++
}

func (t *sessionTotals) wasShort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.short++
}

// topicTotals is safe for concurrent use. Its lock may be taken under a claim's.
type topicTotals struct {
	mu  sync.Mutex
	now TopicTotals
}

func (t *topicTotals) count(f func(now *TopicTotals)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.now)
}

func (c *Consumer) totals() Totals {
	c.sessionTotals.mu.Lock()
	sum := Totals{Rebalances: c.sessionTotals.rebalances, ShortSessions: c.sessionTotals.short}
	c.sessionTotals.mu.Unlock()
	for name, t := range c.topics {
		t.totals.count(func(now *TopicTotals) {
			now.Topic, now.Groups = name, t.groupStats()
			sum.Topics = append(sum.Topics, *now)
		})
	}
	slices.SortFunc(sum.Topics, func(a, b TopicTotals) int { return cmp.Compare(a.Topic, b.Topic) })
	return sum
}

// countPause adds the time for which the claim has been paused since this was last called. It is called under the lock.
func (cl *claim) countPause(now time.Time) {
	if cl.pausedBy == "" || cl.fenced {
		return
	}
	paused := now.Sub(cl.pausedAt)
	cl.pausedAt = now
	cl.topic.totals.count(func(t *TopicTotals) { t.Paused += paused })
}
