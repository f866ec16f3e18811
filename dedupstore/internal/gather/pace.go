package gather

import "time"

// pace decides how many calls a group takes, and how many transactions run side by side. The Gatherer's mutex guards it.
//
// A failure halves the size of groups; a full group that succeeded doubles it. How many transactions run side by side is found
// by trying: two while commits dominate, more for functions that wait for something else, up to single calls on all
// connections, and one after a deadlock.
type pace struct {
	most, size    int
	maxSide, side int

	climb climb

	held  time.Time     // until then, one transaction at a time, because of deadlocks
	hold  time.Duration // how long the next deadlock holds it
	calm  int           // full groups that succeeded since the last deadlock
	tight bool          // Config.Changed has been told
}

const (
	firstSide = 2                // one group's functions run while another one commits
	firstHold = 10 * time.Second // PostgreSQL takes a second to find a deadlock, in which nothing goes on
	mostHold  = time.Minute

	// calmGroups must succeed before groups grow after a deadlock: what collides once collides again.
	calmGroups = 8
)

func newPace(size, side int) pace {
	p := pace{most: max(1, size), maxSide: max(1, side), hold: firstHold}
	p.size, p.side = p.most, min(firstSide, p.maxSide)
	p.climb.reset()
	return p
}

// failed halves the size after a group of n calls was rolled back.
func (p *pace) failed(n int) { p.size = max(1, n/2) }

// contended holds the groups small, one at a time. It reports whether they were not before.
func (p *pace) contended(now time.Time) (began bool) {
	p.size, p.side, p.calm = max(1, p.size/4), 1, 0
	p.held = now.Add(p.hold)
	p.hold = min(2*p.hold, mostHold)
	p.climb.reset()
	began, p.tight = !p.tight, true
	return began
}

// succeeded notes n calls that were answered together. full says that the group had as many as it could. It reports whether
// groups cease to be held small.
func (p *pace) succeeded(n int, full bool, now time.Time) (eased bool) {
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
	if side := p.climb.next(p.side, n, full, now); side != 0 {
		p.side = min(side, p.maxSide)
	}
	if p.tight {
		p.side = 1
	} else if now.After(p.held.Add(2 * mostHold)) {
		p.hold = firstHold
	}
	return eased
}

// climb looks for the number of transactions side by side with which most calls are answered, by trying the double and the
// half of it for a while. It looks only while more calls wait than can run.
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
	windowAnswers  = 16
	firstPatience  = 4
	mostPatience   = 512 // windows: 25 s and more
	worthwhile     = 1.1
	rateSmoothness = 0.5
)

func (c *climb) reset() { *c = climb{up: true, pause: 1, patience: firstPatience} }

// next takes n calls that were answered, and returns the number of transactions to have side by side from now on, or 0 for no
// change.
func (c *climb) next(side, n int, saturated bool, now time.Time) int {
	if !saturated {
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
	return c.try(side)
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

func (c *climb) try(side int) int {
	next := 2 * side
	if !c.up {
		next = side / 2
	}
	if next < 1 {
		c.up, c.pause = true, 1
		return 0
	}
	c.base = side
	return next
}
