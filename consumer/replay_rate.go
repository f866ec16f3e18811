package consumer

import (
	"context"
	"sync"
	"time"
)

// rate spaces out what begins. It is safe for concurrent use.
type rate struct {
	every time.Duration // 0 for no limit

	mu   sync.Mutex
	next time.Time
}

func newRate(perSecond float64) *rate {
	if perSecond <= 0 {
		return &rate{}
	}
	return &rate{every: time.Duration(float64(time.Second) / perSecond)}
}

// wait returns when it is the caller's turn, or with the error of ctx.
func (r *rate) wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if delay := r.turn(time.Now()); delay > 0 && !pause(ctx, delay) {
		return context.Cause(ctx)
	}
	return nil
}

// turn takes the next turn, and says how far off it is. Turns that nobody took are not made up for, but for what a
// timer is late.
func (r *rate) turn(now time.Time) time.Duration {
	if r.every == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if earliest := now.Add(-rateSlack); r.next.Before(earliest) {
		r.next = earliest
	}
	delay := r.next.Sub(now)
	r.next = r.next.Add(r.every)
	return max(0, delay)
}

const rateSlack = 50 * time.Millisecond
