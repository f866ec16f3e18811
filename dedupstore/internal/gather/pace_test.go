package gather

import (
	"testing"
	"time"
)

// After a deadlock there is one group at a time, and a small one, until it has been calm for a while.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	p := newPace(200, 8)
	now := time.Now()
	if !p.contended(now) || p.contended(now) {
		t.Error("the first deadlock is told, and only that")
	}
	if p.side != 1 || p.size >= 50 {
		t.Errorf("side %d, size %d", p.side, p.size)
	}
	eased := false
	for i := range 40_000 {
		now = now.Add(time.Millisecond)
		if p.succeeded(p.size, true, now) {
			eased = true
			if i < 19_000 { // the second one has doubled it
				t.Errorf("eased after %d ms", i)
			}
		}
	}
	if !eased || p.size != 200 {
		t.Errorf("eased %v, size %d", eased, p.size)
	}
}

// The number of transactions side by side follows what answers most calls.
func TestClimb(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate func(side int) float64 // answers per second
		want func(side int) bool
	}{
		"functions wait": {func(side int) float64 { return 500 * float64(side) }, func(side int) bool { return side == 16 }},
		"commits":        {func(side int) float64 { return 20_000 / float64(max(side, 2)) }, func(side int) bool { return side <= 2 }},
		"one is best":    {func(side int) float64 { return 20_000 / float64(side) }, func(side int) bool { return side == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPace(200, 16)
			now := time.Now()
			best := 0
			for range 4000 {
				now = now.Add(10 * time.Millisecond)
				p.succeeded(int(c.rate(p.side)/100), true, now)
				if c.want(p.side) {
					best++
				}
			}
			if best < 3600 {
				t.Errorf("%d of 4000 steps with the right number, at the end %d", best, p.side)
			}
		})
	}
}

// After a deadlock groups grow soon, and stay alone for ten times as long as the database takes to find one: nothing is lost by that.
func TestGroupsAfterADeadlockAreLargeAndAlone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPace(200, 4)
	p.contended(now)
	for range 100 {
		p.succeeded(p.size, true, now.Add(9*time.Second))
	}
	if p.size != 200 || p.side != 1 {
		t.Errorf("after 9 s there are %d groups of %d, want 1 of 200", p.side, p.size)
	}
	most := 0
	for i := range 100 {
		p.succeeded(p.size, true, now.Add(11*time.Second+time.Duration(i)*window))
		most = max(most, p.side)
	}
	if most == 1 {
		t.Error("they stay alone for good")
	}
}
