package faulttest

import (
	"io"
	"slices"
	"sync"
	"time"
)

// journal is what one group did: every call of a handler, every partition that a member got or gave back, every effect.
type journal struct {
	mu         sync.Mutex
	deliveries []delivery
	holds      []hold
	effects    map[string]int // by event id
	short      int            // calls of the hook ShortSession
	echo       io.Writer      // gets it all as lines, if it is not nil
}

// delivery is one call of a handler that returned nil.
type delivery struct {
	Member       string
	Partition    int32
	Offset       int64
	Began, Ended time.Time
}

// hold says that a member got a partition, or gave it back.
type hold struct {
	Member    string
	Partition int32
	Got       bool
	At        time.Time
}

func newJournal() *journal { return &journal{effects: map[string]int{}} }

func (j *journal) delivered(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deliveries = append(j.deliveries, d)
	if j.echo != nil {
		line{Delivery: &d}.write(j.echo)
	}
}

func (j *journal) held(h hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.holds = append(j.holds, h)
	if j.echo != nil {
		line{Hold: &h}.write(j.echo)
	}
}

func (j *journal) effect(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.effects[event]++
}

func (j *journal) shortSession() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.short++
}

func (j *journal) shortSessions() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.short
}

// owned are the partitions that a member has.
func (j *journal) owned(member string) []int32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return ownedAt(j.holds, member, time.Now())
}

func ownedAt(holds []hold, member string, at time.Time) []int32 {
	has := map[int32]bool{}
	for _, h := range holds {
		if h.Member == member && !h.At.After(at) {
			has[h.Partition] = h.Got
		}
	}
	var owned []int32
	for p, yes := range has {
		if yes {
			owned = append(owned, p)
		}
	}
	slices.Sort(owned)
	return owned
}

// active reports whether every partition has had a delivery in the last d.
func (j *journal) active(partitions int32, d time.Duration) bool {
	since := time.Now().Add(-d)
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := map[int32]bool{}
	for _, d := range slices.Backward(j.deliveries) {
		if d.Ended.Before(since) {
			break // the order is that of the ends
		}
		seen[d.Partition] = true
	}
	return len(seen) == int(partitions)
}

// snapshot is a copy, with the deliveries of each partition in the order in which they began.
func (j *journal) snapshot() (byPartition map[int32][]delivery, holds []hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	byPartition = map[int32][]delivery{}
	for _, d := range j.deliveries {
		byPartition[d.Partition] = append(byPartition[d.Partition], d)
	}
	for _, ds := range byPartition {
		slices.SortStableFunc(ds, func(a, b delivery) int { return a.Began.Compare(b.Began) })
	}
	return byPartition, slices.Clone(j.holds)
}

// longestGap is the longest pause between two deliveries within the time, its ends included.
func longestGap(ds []delivery, from, to time.Time) time.Duration {
	var longest time.Duration
	last := from
	for _, d := range ds {
		if d.Began.Before(from) {
			continue
		}
		if d.Began.After(to) {
			break
		}
		longest, last = max(longest, d.Began.Sub(last)), d.Began
	}
	return max(longest, to.Sub(last))
}

// again are the deliveries of messages that had been delivered before; first is when that was.
func again(ds []delivery) (repeated []delivery, first []time.Time) {
	seen := map[int64]time.Time{}
	for _, d := range ds {
		if at, ok := seen[d.Offset]; ok {
			repeated, first = append(repeated, d), append(first, at)
		} else {
			seen[d.Offset] = d.Ended
		}
	}
	return repeated, first
}

// twoOwners are the deliveries of a partition by a member that another one had taken over from: it goes on although it
// has not got the partition again. The hooks are called beside the handlers, hence hookDelay.
func twoOwners(ds []delivery, holds []hold) (found []delivery) {
	last := map[string]time.Time{} // when a member's last delivery began
	owner := ""
	for _, d := range ds {
		before, known := last[d.Member]
		if owner != "" && d.Member != owner && known && !gotBetween(holds, d, before) {
			found = append(found, d)
		} else {
			owner = d.Member
		}
		last[d.Member] = d.Began
	}
	return found
}

const hookDelay = 500 * time.Millisecond

// gotBetween reports whether the delivery's member got the partition between its delivery before and this one.
func gotBetween(holds []hold, d delivery, before time.Time) bool {
	return slices.ContainsFunc(holds, func(h hold) bool {
		return h.Got && h.Member == d.Member && h.Partition == d.Partition && h.At.After(before) &&
			h.At.Before(d.Began.Add(hookDelay))
	})
}

// sessionsEnded is how often the members gave their last partition back within the time.
func sessionsEnded(holds []hold, from, to time.Time) map[string]int {
	ended, count := map[string]int{}, map[string]int{}
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b hold) int { return a.At.Compare(b.At) })
	for _, h := range holds {
		if h.Got {
			count[h.Member]++
			continue
		}
		count[h.Member]--
		if count[h.Member] == 0 && h.At.After(from) && h.At.Before(to) {
			ended[h.Member]++
		}
	}
	return ended
}
