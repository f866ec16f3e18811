package consumer

import (
	"cmp"
	"maps"
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
	Draining Phase = "draining" // ctx is done, or a message failed for good: what is in work finishes
	Stopped  Phase = "stopped"  // Run has returned
)

// Status is a snapshot of a Consumer.
type Status struct {
	Phase      Phase
	Partitions []PartitionStatus // those that this process holds, by topic and partition
}

// PartitionStatus is a snapshot of one partition, taken at one instant.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Assigned  time.Time // since when this process has held it
	Held      int       // messages fetched and not finished
	Running   int       // of them: in a handler
	Paused    bool      // fetching is paused, because too many are held
	Oldest    int64     // offset of the oldest message that is not finished, -1 if there is none
	Next      int64     // the offset that may be committed, -1 before the first message has finished
	Failing   *Failing  // the oldest message that is open after a failed attempt, nil if there is none
}

// Status returns a snapshot: for a readiness probe, a page, a test. It may be called at any time, from any goroutine.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	s := Status{Phase: c.phase}
	claims := slices.Collect(maps.Values(c.claims))
	c.mu.Unlock()
	for _, cl := range claims {
		s.Partitions = append(s.Partitions, cl.status())
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

func (cl *claim) status() PartitionStatus {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s := PartitionStatus{
		Topic: cl.topic.name, Partition: cl.partition, Assigned: cl.since,
		Held: cl.held, Running: len(cl.running), Paused: cl.paused, Oldest: -1, Next: -1,
	}
	if oldest, ok := cl.tracker.Oldest(); ok {
		s.Oldest = oldest
	}
	if next, ok := cl.tracker.Committable(); ok {
		s.Next = next
	}
	for it := range cl.running {
		s.Failing = older(s.Failing, it.failing)
	}
	for it := range cl.parked {
		s.Failing = older(s.Failing, it.failing)
	}
	return s
}

func older(a, b *Failing) *Failing {
	if a == nil || b != nil && b.Offset < a.Offset {
		return b
	}
	return a
}
