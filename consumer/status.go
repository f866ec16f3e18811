package consumer

import (
	"cmp"
	"slices"
	"time"
)

// Phase is where a Consumer is in its life.
type Phase string

// The phases, in their order.
const (
	Created  Phase = "created"  // Run has not been called
	Starting Phase = "starting" // Run checks the servers, or joins the group for the first time
	Running  Phase = "running"  // a member of the group
	Left     Phase = "left"     // out of the group: joining it fails, or stuck handlers have not returned, see LeaveGroup
	Draining Phase = "draining" // ctx is done, or a message failed for good: what is in work finishes
	Stopped  Phase = "stopped"  // Run has returned
)

// Status is a snapshot of a Consumer.
type Status struct {
	Phase      Phase
	Group      string            // Config.Group
	NotReady   string            // why Ready is false, empty if it is true
	Partitions []PartitionStatus // those that this process holds, by topic and partition
	Unread     []Unread          // topics and partitions that cannot be read because the brokers do not know them, or they have no leader
	Degraded   []Degraded        // what the Consumer needs and is without, though it may be ready; the longest first
	Failing    []FailingMessage  // messages that are open after a failed attempt, the first 20 of each partition, by offset
	Totals     Totals            // since New, by topic
	Pauses     []Pause           // that users have asked for, see Consumer.Pause, of partitions that this process does not hold too
}

// PartitionStatus is a snapshot of one partition, taken at one instant.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Assigned  time.Time // since when this process has held it
	Lag       int64     // messages behind the end of the log, those in work included, up to some seconds old; -1 while unknown: just assigned, no leader, refused
	End       int64     // of the log, the offset of the next record that is written, up to some seconds old; -1 while unknown
	Held      int       // messages fetched and not finished
	Bytes     int       // held by them
	Running   int       // of them: in a handler
	Parked    int       // of them: waiting for their next attempt
	Ahead     int       // messages delivered from the oldest open one on, finished ones included
	Paused    bool      // fetching is paused, because a limit is reached
	PausedBy  Limit     // which one keeps it so; empty if none does. Of LimitAhead, Oldest is the message that holds back the others
	UserPause *Pause    // who has paused it by Consumer.Pause, and why; nil if nobody has. No message is begun, none is fetched
	Progress  time.Time // when a message last finished, here or with the owner before if messages stayed open, or Assigned
	LastError error     // of the attempt that failed last, nil if none has

	FetchError error     // why the partition cannot be read, of the last 30 s; nil once something of it was fetched again
	Unread     time.Time // since when

	// OpenTransaction is since when nothing but the end of a producer's transaction is waited for: messages behind it are
	// in the log, and cannot be read before. It is zero if none is, and some seconds late. Lag counts these messages.
	OpenTransaction time.Time

	// Committed is the offset that the brokers have for the group, some seconds late; -1 while it is not known, or there
	// is none.
	Committed int64
	// Uncommitted is since when messages have been finished whose offsets are not known to be committed: seconds for a
	// busy partition, for commits are made once a second, and looked for every 2 s. It is zero if all is committed.
	Uncommitted time.Time

	Oldest         int64     // offset of the oldest message that is not finished, -1 if there is none
	OldestSince    time.Time // when it was fetched, by an earlier owner of the partition too if it was in work there
	OldestDue      time.Time // not before this it is to be handled, see NotBefore; zero if nothing said so
	OldestAttempts int       // at it, that have failed
	Next           int64     // the offset that may be committed, -1 before the first message has finished
	Failing        *Failing  // the oldest message that is open after a failed attempt, nil if there is none

	resumed time.Time // when a UserPause was last over
}

// Status returns a snapshot: for a readiness probe, a page, a test. It may be called at any time, from any goroutine.
func (c *Consumer) Status() Status {
	s := Status{Phase: c.currentPhase(), Group: c.cfg.Group}
	for _, cl := range c.allClaims() {
		s.Partitions = append(s.Partitions, cl.status())
		s.Failing = append(s.Failing, cl.failures()...)
	}
	slices.SortFunc(s.Failing, func(a, b FailingMessage) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	s.Unread, s.Totals = c.unread.list(), c.totals()
	s.Degraded, s.Pauses = c.outages.list(), c.userPauses.list()
	s.NotReady = s.notReady(time.Now(), c.cfg.StallTimeout)
	if w := c.starting.Load(); w != nil && s.Phase == Starting {
		s.NotReady += w.why()
	}
	return s
}

func (cl *claim) status() PartitionStatus {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s := PartitionStatus{
		Topic: cl.topic.name, Partition: cl.partition, Assigned: cl.since, Lag: cl.lag(), End: cl.endOfLog(),
		Held: cl.held, Bytes: cl.bytes, Running: len(cl.running), Parked: len(cl.parked), Ahead: cl.tracker.Ahead(),
		Paused: cl.pausedBy != "", PausedBy: cl.pausedBy, Progress: cl.progress, LastError: cl.lastErr,
		Oldest: -1, Next: -1, OpenTransaction: cl.transaction.since,
		Committed: cl.commits.offset(), Uncommitted: cl.commits.since, UserPause: cl.userPause, resumed: cl.resumedAt,
	}
	if time.Since(cl.fetchErrAt) < fetchErrFresh {
		s.FetchError, s.Unread = cl.fetchErr, cl.unread
	}
	if it := cl.open.oldest; it != nil {
		s.Oldest, s.OldestSince, s.OldestDue, s.OldestAttempts = it.offset, it.fetched, it.due, it.attempts()
	}
	if next, ok := cl.tracker.Committable(); ok {
		s.Next = next
	}
	if it := cl.open.oldest; it != nil { // it may be waiting for its turn, with attempts of an earlier owner
		s.Failing = it.failing
	}
	for _, it := range cl.running {
		s.Failing = older(s.Failing, it.failing)
	}
	for it := range cl.parked {
		s.Failing = older(s.Failing, it.failing)
	}
	return s
}

const (
	// maxFailures is how many failing messages of a partition are shown: for a person to see what is wrong.
	maxFailures = 20
	// failuresAmong is among how many open messages they are looked for, since the lock is held.
	failuresAmong = 10_000
)

// failures are the first messages that are open after a failed attempt.
func (cl *claim) failures() (list []FailingMessage) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	looked := 0
	for it := cl.open.oldest; it != nil && len(list) < maxFailures && looked < failuresAmong; it = it.newer {
		if looked++; it.failing != nil {
			list = append(list, FailingMessage{cl.topic.name, cl.partition, *it.failing})
		}
	}
	return list
}

// endOfLog is the end of the log as of the last fetch, or as the broker told since, for no fetch tells it while the partition
// is paused; -1 while it is unknown. It is called under the lock.
func (cl *claim) endOfLog() int64 {
	end := max(cl.source.HighWaterMarkOffset(), cl.logEnd)
	if cl.endLost || end == 0 && !cl.endKnown {
		return -1
	}
	return end
}

// lag is called under the lock.
func (cl *claim) lag() int64 {
	end, position := cl.endOfLog(), cl.position()
	if position < 0 || end < 0 {
		return -1
	}
	return max(0, end-position)
}

func older(a, b *Failing) *Failing {
	if a == nil || b != nil && b.Offset < a.Offset {
		return b
	}
	return a
}
