package faulttest

import (
	"testing"
	"time"
)

// The checks themselves: what they are for, they find.

var zero = time.Unix(1_000_000, 0)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func delivered(member string, offset int64, ms int) delivery {
	return delivery{Member: member, Offset: offset, Began: at(ms), Ended: at(ms + 10)}
}

func TestGapsAreFound(t *testing.T) {
	t.Parallel()
	ds := []delivery{delivered("a", 0, 0), delivered("a", 1, 100), delivered("a", 2, 700), delivered("a", 3, 800)}
	for _, test := range []struct {
		name     string
		from, to int
		want     time.Duration
	}{
		{"between two", 0, 900, 600 * time.Millisecond},
		{"at the end", 650, 2000, 1200 * time.Millisecond},
		{"from the beginning", 150, 900, 550 * time.Millisecond},
		{"nothing at all", 900, 1000, 100 * time.Millisecond},
	} {
		if got := longestGap(ds, at(test.from), at(test.to)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestRepetitionsAreFound(t *testing.T) {
	t.Parallel()
	repeated, first := again([]delivery{delivered("a", 0, 0), delivered("a", 1, 20), delivered("b", 1, 40),
		delivered("b", 2, 60)})
	if len(repeated) != 1 || repeated[0].Offset != 1 || repeated[0].Member != "b" || !first[0].Equal(at(30)) {
		t.Errorf("%v first at %v", repeated, first)
	}
}

func TestTwoOwnersAreFound(t *testing.T) {
	t.Parallel()
	holds := []hold{{"a", 0, true, at(0)}, {"b", 0, true, at(100)}}
	ds := []delivery{delivered("a", 0, 10), delivered("b", 1, 110), delivered("a", 2, 120), delivered("b", 3, 130)}
	if found := twoOwners(ds, holds); len(found) != 1 || found[0].Offset != 2 {
		t.Errorf("a goes on after b began: %v", found)
	}
	if found := twoOwners(ds[:2], holds); len(found) != 0 {
		t.Errorf("b took over: %v", found)
	}
	holds = append(holds, hold{"a", 0, true, at(119)})
	if found := twoOwners(ds[:3], holds); len(found) != 0 {
		t.Errorf("a got it again: %v", found)
	}
}

func TestEndedSessionsAreCounted(t *testing.T) {
	t.Parallel()
	holds := []hold{
		{"a", 0, true, at(0)}, {"a", 0, false, at(2)}, // before
		{"a", 0, true, at(4)}, {"a", 1, true, at(5)}, {"b", 2, true, at(6)},
		{"a", 0, false, at(10)}, {"a", 1, false, at(11)}, {"a", 0, true, at(20)}, {"b", 2, false, at(50)},
	}
	if got := sessionsEnded(holds, at(3), at(40)); got["a"] != 1 || got["b"] != 0 {
		t.Errorf("%v, want one of a", got)
	}
	if owned := ownedAt(holds, "a", at(40)); len(owned) != 1 || owned[0] != 0 {
		t.Errorf("a has %v", owned)
	}
}
