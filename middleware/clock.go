package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/turn"
)

// clock is the context of an attempt under a Timeout. Its deadline is that of the handler, except while Dedup waits for
// the database.
type clock struct {
	context.Context
	cancel context.CancelCauseFunc
	link   *timeout
	outer  *clock // of a Timeout around this one, or nil

	mu      sync.Mutex
	timer   *time.Timer
	end     time.Time     // the deadline
	waiting bool          // for the database
	left    time.Duration // of the handler's time, while waiting
}

type clockKey struct{}

// newClock returns a clock that runs. stop must be called.
func newClock(parent context.Context, link *timeout) *clock {
	c := &clock{link: link, outer: clockOf(parent), end: time.Now().Add(link.d)}
	c.Context, c.cancel = context.WithCancelCause(parent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(link.d, c.expire)
	return c
}

// clockOf returns the innermost clock that ctx comes from, or nil, which is a clock that never ends anything.
func clockOf(ctx context.Context) *clock {
	c, _ := ctx.Value(clockKey{}).(*clock)
	return c
}

// Value implements context.Context.
func (c *clock) Value(key any) any {
	if key == (clockKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Deadline implements context.Context. It is later for a handler that begins after a wait.
func (c *clock) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.Context.Deadline(); ok && at.Before(c.end) {
		return at, true
	}
	return c.end, true
}

// wait holds the handler's time while the database is waited for, which has a time of its own.
func (c *clock) wait() {
	if c == nil {
		return
	}
	c.outer.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.waiting || c.ended(now) {
		return
	}
	c.waiting, c.left = true, c.end.Sub(now)
	c.set(now.Add(c.link.waited.limit))
}

// run lets the handler's time go on.
func (c *clock) run() {
	if c == nil {
		return
	}
	c.outer.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.waiting || c.ended(now) {
		return
	}
	c.waiting = false
	c.set(now.Add(c.left))
}

// stop frees what the clock holds. Its context is done then.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.cancel(nil)
}

// set moves the deadline.
func (c *clock) set(end time.Time) {
	c.end = end
	c.timer.Reset(time.Until(end))
}

// ended cancels the context if its deadline has come: the timer may be late.
func (c *clock) ended(now time.Time) bool {
	if now.Before(c.end) {
		return c.Err() != nil
	}
	if c.waiting && !turn.From(c.Context).First() { // the database is not to blame, nor is the event: it stands behind another one
		c.set(now.Add(c.link.waited.limit))
		return c.Err() != nil
	}
	if c.waiting {
		c.cancel(c.link.waited)
	} else {
		c.cancel(c.link.over)
	}
	return true
}

// expire is what the timer calls, perhaps just after the deadline was moved.
func (c *clock) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended(time.Now())
}

// Err implements context.Context: a deadline that has passed is context.DeadlineExceeded.
func (c *clock) Err() error {
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	switch context.Cause(c.Context) {
	case error(c.link.over), error(c.link.waited): //nolint:errorlint // these very causes
		return context.DeadlineExceeded
	}
	return err
}
