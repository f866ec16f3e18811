package consumermetrics

import (
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// place is a partition, or with partition -1 a topic.
type place struct {
	topic     string
	partition int32
}

// sum is what the partitions of a place come to.
type sum struct {
	partitions, unreadable, paused, lag, held, heldSize, inFlight, parked, gap int64
	committed, end                                                             int64
	committedUnknown, endUnknown                                               bool // of one of them
	waiting, oldest, failing                                                   time.Duration
	lagUnknown                                                                 bool // of one of them
}

func (s *sum) add(p *consumer.PartitionStatus, now time.Time) {
	s.partitions++
	if p.FetchError != nil {
		s.unreadable++
	}
	if p.Paused {
		s.paused++
	}
	s.lag += p.Lag
	s.lagUnknown = s.lagUnknown || p.Lag < 0
	s.committed += p.Committed
	s.committedUnknown = s.committedUnknown || p.Committed < 0
	s.end += p.End
	s.endUnknown = s.endUnknown || p.End < 0
	if !p.Uncommitted.IsZero() {
		s.waiting = max(s.waiting, now.Sub(p.Uncommitted))
	}
	s.held += int64(p.Held)
	s.heldSize += int64(p.Bytes)
	s.inFlight += int64(p.Running)
	s.parked += int64(p.Parked)
	s.gap = max(s.gap, int64(p.Ahead))
	if p.UserPause != nil {
		return // its messages are not late: they are to wait
	}
	if p.Oldest >= 0 {
		s.oldest = max(s.oldest, now.Sub(p.OldestSince))
	}
	if p.Failing != nil {
		s.failing = max(s.failing, now.Sub(p.Failing.Since))
	}
}
