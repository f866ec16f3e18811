package consumer

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// history is what became of the attempts at a message so far.
type history struct {
	first   time.Time // start of the first attempt
	failing *Failing  // nil before the first has failed
}

// attempts is how many attempts have failed.
func (h *history) attempts() int {
	if h.failing == nil {
		return 0
	}
	return h.failing.Attempts
}

// excused is how many of them do not count for middleware.Retry.
func (h *history) excused() int {
	if h.failing == nil {
		return 0
	}
	return h.failing.excused
}

// note keeps what was judged. An attempt before a message was due is none.
func (h *history) note(f *Failing) {
	switch {
	case !f.waits:
		h.failing = f
	case h.failing == nil:
		h.first = time.Time{}
	}
}

// attempt fills in what the runner knows about msg, which is made for this attempt, and runs the chain once in ctx,
// which carries it. A panic is contained, and so is an error whose methods panic; the EventID function is the user's
// too.
func (t *topic) attempt(ctx context.Context, msg *Message, h *history) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = SafeError(&Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	if h.first.IsZero() {
		h.first = time.Now()
	}
	msg.Group, msg.Consumer, msg.Result, msg.errorText = t.group, t.consumer, Result{}, t.errorText
	msg.Attempt, msg.FirstAttempt, msg.LastError = h.attempts()+1, h.first, nil
	if h.failing != nil {
		msg.LastError = h.failing.Err
	}
	msg.EventID, msg.EventIDErr = t.idOf(msg)
	return SafeError(t.chain.Handle(ctx, msg))
}

// idOf asks the user's function. Its panic is as good as no id: it goes where messages without one go.
func (t *topic) idOf(msg *Message) (id string, err error) {
	defer func() {
		if v := recover(); v != nil {
			id, err = "", fmt.Errorf("%w: Topic.EventID: %w", ErrNoEventID, SafeError(&Panic{Value: v, Stack: debug.Stack()}))
		}
	}()
	id, err = t.eventID(msg)
	return id, SafeError(err)
}

// exited is what an attempt came to that ended its goroutine.
func exited(msg *Message) error {
	if msg.Result.Exited != nil {
		return SafeError(msg.Result.Exited.Err)
	}
	return &Panic{}
}

// judge says what follows on an attempt that ended with err, and is not yet in h. It is nil if nothing does: because
// the message has taken effect, or because ctx is done. What a drain cuts short has neither succeeded nor failed: it is
// delivered again.
func (t *topic) judge(ctx context.Context, offset int64, h history, err error) *Failing {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	err = SafeError(err)
	f := &Failing{Offset: offset, Attempts: h.attempts() + 1, Since: h.first, Err: err, excused: excusedOf(err)}
	delay, asked := Delay(err)
	_, f.waits = Due(err)
	switch {
	case asked:
		f.delay = askedDelay(delay, f.waits)
	case t.onFailure == Stop:
		return f
	default:
		f.delay = keepTryingDelay(f.Attempts)
	}
	f.RetryAt = time.Now().Add(f.delay)
	return f
}
