package turn

import (
	"testing"

	"pgregory.net/rapid"
)

// Next is the first that has not settled, whatever the order; watchers hear of each change of it, and of nothing else.
func TestSettle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "messages")
		var l Lane
		turns := make([]*Turn, n)
		for i := range turns {
			turns[i] = l.Join()
		}
		told := 0
		l.Watch("test", func() { told++ })
		settled := map[int]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 60).Draw(t, "settle") {
			before, heard := l.Next(), told
			turns[i].Settle()
			settled[i] = true
			want := 0
			for settled[want] {
				want++
			}
			if l.Next() != uint64(want) {
				t.Fatalf("Next() = %d, want %d", l.Next(), want)
			}
			if (l.Next() != before) != (told == heard+1) || told > heard+1 {
				t.Fatalf("told %d times, next from %d to %d", told-heard, before, l.Next())
			}
		}
		if len(l.settled) > n {
			t.Fatal("it remembers what is past")
		}
	})
}
