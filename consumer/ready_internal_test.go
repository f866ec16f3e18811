package consumer

import (
	"testing"
	"time"
)

// A partition that waits for its oldest message to be due has not stalled; from then on it may.
func TestReadyWhileNothingIsDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := now.Add(-time.Hour)
	for due, ready := range map[time.Time]bool{{}: false, now.Add(time.Hour): true, now.Add(-5 * time.Minute): true,
		now.Add(-20 * time.Minute): false} {
		s := Status{Phase: Running, Partitions: []PartitionStatus{{Topic: "t", Held: 1, Progress: ago, OldestSince: ago,
			OldestDue: due}}}
		if got := s.notReady(now, 10*time.Minute); (got == "") != ready {
			t.Errorf("due %v from now: %q", due.Sub(now), got)
		}
	}
}

// A partition that a user has paused has not stalled, nor has one that was resumed just now; later it may have.
func TestReadyWhilePaused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := now.Add(-time.Hour)
	for _, c := range []struct {
		pause   *Pause
		resumed time.Time
		ready   bool
	}{{&Pause{}, time.Time{}, true}, {nil, now.Add(-time.Minute), true}, {nil, now.Add(-20 * time.Minute), false},
		{nil, time.Time{}, false}} {
		s := Status{Phase: Running, Partitions: []PartitionStatus{{Topic: "t", Held: 1, Progress: ago, OldestSince: ago,
			UserPause: c.pause, resumed: c.resumed}}}
		if got := s.notReady(now, 10*time.Minute); (got == "") != c.ready {
			t.Errorf("paused %v, resumed %v: %q", c.pause != nil, c.resumed, got)
		}
	}
}
