package gather

import (
	"math"
	"time"
)

// pace decides how many calls a group takes, and how many transactions run side by side. The Gatherer's mutex guards
// it.
//
// A failure halves the size of groups; a full group that succeeded doubles it, up to bounds that follow the part of the
// calls that fail and the time that functions take. How many transactions run side by side is found by trying: two
// while commits dominate, more for functions that wait for something else, up to single calls on all connections, and
// one after a deadlock.
type pace struct {
	most, size    int
	maxSide, side int
	failing       float64       // the part of the calls that fail, smoothed
	span          time.Duration // that functions of a group may take together; 0 for no bound
	function      float64       // nanoseconds that a function takes, smoothed

	climb climb

	held  time.Time     // until then, one transaction at a time, because of deadlocks
	hold  time.Duration // how long the next deadlock holds it
	calm  int           // full groups that succeeded since the last deadlock
	tight bool          // Config.Changed has been told

	single bool      // Config.Changed has been told
	differ time.Time // since when single is not what is so, zero if it is
}

const (
	firstSide = 2                // one group's functions run while another one commits
	firstHold = 10 * time.Second // PostgreSQL takes a second to find a deadlock, in which nothing goes on
	mostHold  = time.Minute

	// calmGroups must succeed before groups grow after a deadlock: what collides once collides again.
	calmGroups = 8
)

func newPace(size, side int, span time.Duration) pace {
	p := pace{most: max(1, size), maxSide: max(1, side), span: span, hold: firstHold}
	p.size, p.side = p.most, min(firstSide, p.maxSide)
	p.climb.reset()
	return p
}

const (
	failureMemory = 64.0 // calls over which failing is smoothed

	// failuresPerGroup is how many failures a group may expect. A failure costs the functions that have run before it once
	// more, a small group the round trips and the commit that a larger one shares: with 1 % failing, groups of 50 cost
	// least where a commit costs ten functions.
	failuresPerGroup = 0.5

	singleSide = 16 // consumer.DefaultWorkers
)

// members is how many calls the next group may take. Of more than its span allows the records would be written in vain.
func (p *pace) members() int {
	n := p.size
	if p.failing*float64(n) > failuresPerGroup {
		n = int(failuresPerGroup / p.failing)
	}
	if p.span > 0 && p.function*float64(n) > float64(p.span) {
		n = int(float64(p.span) / p.function)
	}
	return max(1, n)
}

const (
	functionMemory = 32.0                      // functions over which their time is smoothed
	quickFunction  = float64(time.Millisecond) // what any function may take
)

// took notes that n functions have taken d together. One that takes much longer than those before says little of those
// to come.
func (p *pace) took(d time.Duration, n int) {
	if n == 0 {
		return
	}
	each := min(float64(d)/float64(n), 4*max(p.function, quickFunction))
	p.function += (each - p.function) * min(1, float64(n)/functionMemory)
}

// sides is how many transactions may run side by side. Where calls fail so often that there are no groups, there are as
// many as a consumer without groups has: too few calls are answered to find the best number by trying.
func (p *pace) sides() int {
	if p.members() == 1 && p.most > 1 && !p.tight {
		return max(p.side, min(p.maxSide, singleSide))
	}
	return p.side
}

// decided is how long calls must have had transactions of their own, or groups, before that is said.
const decided = time.Second

// decide reports whether calls have transactions of their own because groups do not pay, and whether that is new.
func (p *pace) decide(now time.Time) (single, changed bool) {
	if p.climb.tries() {
		return p.single, false
	}
	many := p.maxSide > 2*firstSide && p.side == p.maxSide
	if p.single == (p.most > 1 && !p.tight && (p.members() == 1 || many)) {
		p.differ = time.Time{}
		return p.single, false
	}
	if p.differ.IsZero() {
		p.differ = now
	}
	if now.Sub(p.differ) < decided {
		return p.single, false
	}
	p.single, p.differ = !p.single, time.Time{}
	return p.single, true
}

// halve takes half of n calls at once, after a group of them was rolled back.
func (p *pace) halve(n int) { p.size = max(1, n/2) }

// failed notes a call that was answered with its function's failure.
func (p *pace) failed() { p.failing += (1 - p.failing) / failureMemory }

// contended holds the groups small, one at a time. It reports whether they were not before.
func (p *pace) contended(now time.Time) (began bool) {
	p.size, p.side, p.calm = max(1, p.size/4), 1, 0
	p.held = now.Add(p.hold)
	p.hold = min(2*p.hold, mostHold)
	p.climb.reset()
	began, p.tight = !p.tight, true
	return began
}

// load is what might be gained by another number of transactions side by side.
type load int

const (
	loadLow  load = iota // nothing
	loadHigh             // calls wait for a transaction, or run alone beside others
	loadSlow             // calls wait for slow functions before theirs
)

// succeeded notes n calls that were answered together. full says that the group had as many as it could. It reports
// whether groups cease to be held small.
func (p *pace) succeeded(n int, full bool, by load, now time.Time) (eased bool) {
	p.failing *= math.Pow(1-1/failureMemory, float64(n))
	if full {
		p.calm++
	}
	held := now.Before(p.held)
	if full && (!p.tight || p.calm >= calmGroups) {
		p.size, p.calm = min(2*p.size, p.most), 0
	}
	if p.tight && !held && p.size == p.most {
		p.tight, eased = false, true
	}
	if held {
		return false
	}
	if side := p.climb.next(p.side, n, by, now); side != 0 {
		p.side = min(side, p.maxSide)
	}
	if p.tight {
		p.side = 1
	} else if now.After(p.held.Add(2 * mostHold)) {
		p.hold = firstHold
	}
	return eased
}

// climb looks for the number of transactions side by side with which most calls are answered, by trying the double and
// the half of it for a while, or many times as many if functions are slow. It looks only while there is something to
// gain.
type climb struct {
	began    time.Time // of the window
	answered int       // in the window

	base     int     // the number to return to, 0 while nothing is tried
	rate     float64 // answered per second with base, smoothed
	up       bool    // the direction of the next try
	pause    int     // windows until then
	patience int     // the pause after a try that was no better
}

const (
	window         = 50 * time.Millisecond
	windowAnswers  = 64 // of fewer the number says little
	firstPatience  = 4
	mostPatience   = 512 // windows: 25 s and more
	worthwhile     = 1.1
	rateSmoothness = 0.5
)

// tries reports whether another number is being tried.
func (c *climb) tries() bool { return c.base != 0 }

func (c *climb) reset() { *c = climb{up: true, pause: 1, patience: firstPatience} }

// next takes n calls that were answered, and returns the number of transactions to have side by side from now on, or 0
// for no change.
func (c *climb) next(side, n int, by load, now time.Time) int {
	if by == loadLow {
		c.began = time.Time{}
		return 0
	}
	if c.began.IsZero() {
		c.began, c.answered = now, 0
		return 0
	}
	c.answered += n
	passed := now.Sub(c.began)
	if passed < window || c.answered < windowAnswers {
		return 0
	}
	rate := float64(c.answered) / passed.Seconds()
	c.began, c.answered = now, 0
	if c.base != 0 {
		return c.judge(rate)
	}
	if c.rate == 0 {
		c.rate = rate
	}
	c.rate += rateSmoothness * (rate - c.rate)
	if c.pause--; c.pause > 0 {
		return 0
	}
	return c.try(side, by)
}

// judge ends a try.
func (c *climb) judge(rate float64) int {
	base := c.base
	c.base = 0
	if rate >= worthwhile*c.rate {
		c.rate, c.pause, c.patience = rate, 1, firstPatience
		return 0
	}
	c.up = !c.up
	c.pause = c.patience
	c.patience = min(2*c.patience, mostPatience)
	return base
}

func (c *climb) try(side int, by load) int {
	next := 2 * side
	switch {
	case !c.up:
		next = side / 2
	case by == loadSlow:
		next = 8 * side
	}
	if next < 1 {
		c.up, c.pause = true, 1
		return 0
	}
	c.base = side
	return next
}
