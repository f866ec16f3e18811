package pgxstore

import (
	"context"
	"sync"
	"time"
)

// limit makes contexts that all last equally long. It does what context.WithTimeout does with one timer for all of
// them, instead of one each: setting one up wakes a thread of the Go runtime, and twice for each message that is 5 % of
// what a call costs the client. It is safe for concurrent use.
type limit struct {
	length time.Duration

	mu           sync.Mutex
	oldest, last *limited // those that run, in the order in which they end
	ticking      bool     // a timer runs, for one that is or was the oldest
}

// limited is a context of a limit.
type limited struct {
	context.Context
	cancel       context.CancelCauseFunc
	end          time.Time
	older, newer *limited
}

// start returns a context that ends with parent, or when the limit has passed. stop must be called.
func (l *limit) start(parent context.Context) *limited {
	c := &limited{}
	c.Context, c.cancel = context.WithCancelCause(parent)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.end = time.Now().Add(l.length)
	if c.older = l.last; c.older != nil {
		c.older.newer = c
	} else {
		l.oldest = c
	}
	l.last = c
	if !l.ticking {
		l.ticking = true
		time.AfterFunc(l.length, l.expire)
	}
	return c
}

// stop ends c.
func (l *limit) stop(c *limited) {
	c.cancel(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

// remove takes c off the list, unless it is off already.
func (l *limit) remove(c *limited) {
	if c.older == nil && l.oldest != c {
		return
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		l.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		l.last = c.older
	}
	c.older, c.newer = nil, nil
}

// expire ends what has passed the limit, and waits for the next.
func (l *limit) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for l.oldest != nil && !l.oldest.end.After(now) {
		c := l.oldest
		l.remove(c)
		c.cancel(context.DeadlineExceeded)
	}
	if l.oldest == nil {
		l.ticking = false
		return
	}
	time.AfterFunc(l.oldest.end.Sub(now), l.expire)
}

// Err is context.DeadlineExceeded when the limit has passed.
func (c *limited) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == context.DeadlineExceeded { //nolint:errorlint // this very one: a parent's cause may wrap it
		return context.DeadlineExceeded
	}
	return err
}

// Deadline implements context.Context.
func (c *limited) Deadline() (time.Time, bool) {
	if at, ok := c.Context.Deadline(); ok && at.Before(c.end) {
		return at, true
	}
	return c.end, true
}
