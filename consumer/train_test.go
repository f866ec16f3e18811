package consumer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A train hands out consecutive messages, at most its length at once, none behind one that is parked; what is parked comes again first, the
// oldest of it before the others; and no message is first in the order before all before it have finished.
func TestTrainAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(2, 6).Draw(t, "length")
		q := newQueue(PartitionOrder, length)
		var waiting, running, parked, again, done []*item
		pushed := int64(0)
		one := func(t *rapid.T, items []*item) *item {
			if len(items) == 0 {
				t.Skip("there is none")
			}
			return rapid.SampledFrom(items).Draw(t, "item")
		}
		want := func() *item {
			switch {
			case len(again) > 0:
				return slices.MinFunc(again, func(a, b *item) int { return int(a.offset - b.offset) })
			case len(waiting) > 0 && len(parked) == 0 && len(running) < length:
				return waiting[0]
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					it := numbered(pushed, nil)
					pushed++
					q.push(it)
					waiting = append(waiting, it)
				}
			},
			"next": func(t *rapid.T) {
				got, it := q.next(), want()
				if got != it {
					t.Fatalf("next: %d, want %d", offsetOf(got), offsetOf(it))
				}
				if it == nil {
					return
				}
				waiting, again = remove(waiting, it), remove(again, it)
				running = append(running, it)
			},
			"finished": func(t *rapid.T) {
				it := one(t, running)
				q.finished(it)
				running = remove(running, it)
				done = append(done, it)
			},
			"park": func(t *rapid.T) {
				it := one(t, running)
				q.park()
				running = remove(running, it)
				parked = append(parked, it)
			},
			"unpark": func(t *rapid.T) {
				it := one(t, parked)
				q.unpark(it)
				parked = remove(parked, it)
				again = append(again, it)
			},
			"": func(t *rapid.T) {
				if q.hasReady() != (want() != nil) {
					t.Fatalf("hasReady: %v, next is %d", q.hasReady(), offsetOf(want()))
				}
				for _, it := range running {
					open := slices.ContainsFunc(slices.Concat(running, parked, again), func(o *item) bool { return o.offset < it.offset })
					if it.waits() != open {
						t.Fatalf("message %d waits: %v, but one before it is open: %v", it.offset, it.waits(), open)
					}
				}
			},
		})
	})
}
