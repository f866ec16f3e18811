package gather

import (
	"slices"
	"testing"
	"time"
)

// After a deadlock there is one group at a time, and a small one, until it has been calm for a while.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	p := newPace(200, 8, 0)
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
		if p.succeeded(p.size, true, loadHigh, now) {
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
		"commits": {func(side int) float64 { return 20_000 / float64(max(side, 2)) },
			func(side int) bool { return side <= 2 }},
		"one is best": {func(side int) float64 { return 20_000 / float64(side) },
			func(side int) bool { return side == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPace(200, 16, 0)
			now := time.Now()
			best := 0
			for range 4000 {
				now = now.Add(10 * time.Millisecond)
				p.succeeded(int(c.rate(p.side)/100), true, loadHigh, now)
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

// After a deadlock groups grow soon, and stay alone for ten times as long as the database takes to find one: nothing is
// lost by that.
func TestGroupsAfterADeadlockAreLargeAndAlone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPace(200, 4, 0)
	p.contended(now)
	for range 100 {
		p.succeeded(p.size, true, loadHigh, now.Add(9*time.Second))
	}
	if p.size != 200 || p.side != 1 {
		t.Errorf("after 9 s there are %d groups of %d, want 1 of 200", p.side, p.size)
	}
	most := 0
	for i := range 100 {
		p.succeeded(p.size, true, loadHigh, now.Add(11*time.Second+time.Duration(i)*window))
		most = max(most, p.side)
	}
	if most == 1 {
		t.Error("they stay alone for good")
	}
}

// Where most calls fail there are no groups. They come back when calls succeed, and where few fail they are as large as
// pays.
func TestGroupsFollowThePartThatFails(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPace(200, 30, 0)
	var said []bool // single or not
	run := func(calls, every int) (least, most int) {
		least = p.most
		for i := range calls {
			now = now.Add(time.Millisecond)
			if i%every == 0 {
				p.failed()
			}
			p.succeeded(1, true, loadLow, now)
			if single, changed := p.decide(now); changed {
				said = append(said, single)
			}
			if i > calls/2 {
				least, most = min(least, p.members()), max(most, p.members())
			}
		}
		return least, most
	}
	if _, most := run(1400, 1); most != 1 || p.sides() != singleSide {
		t.Errorf("each call fails and has a dead letter: groups of up to %d, %d side by side, want 1 and %d", most, p.sides(),
			singleSide)
	}
	if least, most := run(4000, 100); least < 20 || most > 150 {
		t.Errorf("one of 100 fails: groups of %d to %d, want 20 to 150", least, most)
	}
	if least, _ := run(2000, 5000); least != 200 || p.sides() != firstSide {
		t.Errorf("none fails: groups of %d, %d side by side, want 200 and %d", least, p.sides(), firstSide)
	}
	if !slices.Equal(said, []bool{true, false}) {
		t.Errorf("it is said %v, want that there are no groups, and that they are back", said)
	}
}

// A function that takes long once says little of the next ones, and many that do bound the group by its span.
func TestOneSlowFunctionLeavesGroupsAsTheyAre(t *testing.T) {
	t.Parallel()
	p := newPace(50, 4, 20*time.Millisecond)
	p.took(time.Second, 1)
	p.took(time.Second, 1)
	if n := p.members(); n != 50 {
		t.Errorf("after two slow functions groups have %d calls, want 50", n)
	}
	for range 50 {
		p.took(40*time.Millisecond, 10)
	}
	if n := p.members(); n < 4 || n > 6 {
		t.Errorf("functions take 4 ms, groups have %d calls, want 5", n)
	}
}
