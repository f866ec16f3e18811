package consumer

import (
	"context"
	"sync/atomic"
	"time"
)

// attemptContext is the context of one attempt: the claim's, with the message, and a cancellation of its own. Most
// handlers never look at Done, so the part that can be cancelled is made when somebody does: a message costs no
// registration with its claim.
type attemptContext struct {
	parent context.Context
	msg    *Message
	own    atomic.Pointer[cancelled]
}

type cancelled struct {
	context.Context
	cancel context.CancelCauseFunc
}

// real returns the part that can be cancelled.
func (c *attemptContext) real() *cancelled {
	if own := c.own.Load(); own != nil {
		return own
	}
	ctx, cancel := context.WithCancelCause(c.parent)
	own := &cancelled{ctx, cancel}
	if !c.own.CompareAndSwap(nil, own) {
		cancel(nil)
		return c.own.Load()
	}
	return own
}

func (c *attemptContext) cancel(cause error) { c.real().cancel(cause) }

// end frees what was made. From then on the context is done, for those who kept it.
func (c *attemptContext) end() {
	if !c.own.CompareAndSwap(nil, ended) {
		c.own.Load().cancel(nil)
	}
}

// ended stands for the part that can be cancelled where nobody asked for it in time.
var ended = func() *cancelled {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(nil)
	return &cancelled{ctx, cancel}
}()

func (c *attemptContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *attemptContext) Done() <-chan struct{}       { return c.real().Done() }

func (c *attemptContext) Err() error {
	if own := c.own.Load(); own != nil {
		return own.Err()
	}
	return c.parent.Err()
}

// Value also answers package context's own questions, so that contexts derived from this one are linked to it without a
// goroutine each, and context.Cause finds the cause.
func (c *attemptContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.msg
	}
	return c.real().Value(key)
}
