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
	for due, ready := range map[time.Time]bool{{}: false, now.Add(time.Hour): true, now.Add(-5 * time.Minute): true, now.Add(-20 * time.Minute): false} {
		s := Status{Phase: Running, Partitions: []PartitionStatus{{Topic: "t", Held: 1, Progress: ago, OldestSince: ago, OldestDue: due}}}
		if got := s.notReady(now, 10*time.Minute); (got == "") != ready {
			t.Errorf("due %v from now: %q", due.Sub(now), got)
		}
	}
}
