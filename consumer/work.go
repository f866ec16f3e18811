package consumer

import (
	"context"
	"log/slog"
	"time"
)

// attempt runs the chain once.
func (cl *claim) attempt(it *item) error {
	if it.first.IsZero() {
		it.first = it.started
	}
	msg := it.message()
	msg.Group, msg.Consumer, msg.TopicID = cl.run.cfg.Group, cl.topic.consumer, cl.topicID
	msg.Attempt, msg.FirstAttempt = it.attempts()+1, it.first
	if it.failing != nil {
		msg.LastError = it.failing.Err
	}
	if cl.topic.limit == 0 {
		return cl.topic.attempt(WithMessage(cl.ctx, msg), msg)
	}
	ctx, cancel := context.WithCancelCause(WithMessage(cl.ctx, msg))
	defer cancel(nil)
	it.cancel.Store(&cancel)
	return cl.topic.attempt(ctx, msg)
}

// finish takes the outcome of an attempt and returns what the same worker may run next in this claim.
func (cl *claim) finish(it *item, err error) (next *item) {
	f := cl.judge(it, err)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.running, it)
	it.cancel.Store(nil)
	switch {
	case err == nil:
		cl.complete(it)
	case f != nil && !cl.stopped:
		it.failing, cl.lastErr = f, f.Err
		cl.park(it)
	}
	if cl.stopped {
		if len(cl.running) == 0 {
			close(cl.idle)
		}
		return nil
	}
	if cl.topic.workers.contended.Load() {
		if cl.queue.hasReady() {
			cl.topic.workers.wait(cl)
		}
		return nil
	}
	return cl.start()
}

// complete marks the end of the contiguous prefix of finished messages.
func (cl *claim) complete(it *item) {
	size := it.size()
	cl.open.remove(it)
	cl.held--
	cl.bytes -= size
	cl.progress = time.Now()
	cl.queue.finished(it)
	if err := cl.tracker.Done(it.rec.Offset); err != nil {
		cl.run.log.Error("einmal: a message finished that was not open", cl.attrs(slog.Any("error", err))...)
	}
	if offset, ok := cl.tracker.Committable(); ok && offset > cl.marked && !cl.fenced {
		cl.marked = offset
		cl.session.MarkOffset(cl.topic.name, cl.partition, offset, "")
	}
	if !cl.fenced {
		cl.run.release(1, size)
	}
	cl.resumeIfLow()
}

// park holds a message that failed until its next attempt is due. Nobody waits with it.
func (cl *claim) park(it *item) {
	if it.failing.RetryAt.IsZero() {
		cl.parked[it] = nil // OnFailure is Stop
		return
	}
	cl.parked[it] = time.AfterFunc(time.Until(it.failing.RetryAt), func() { cl.unpark(it) })
}

func (cl *claim) unpark(it *item) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.stopped {
		return
	}
	delete(cl.parked, it)
	cl.queue.unpark(it)
	cl.dispatch()
}

// judge says what becomes of a message whose attempt has failed: nil if nothing has to be done. It runs without the lock.
func (cl *claim) judge(it *item, err error) *Failing {
	if err == nil || cl.ctx.Err() != nil {
		return nil
	}
	f := &Failing{Offset: it.rec.Offset, Attempts: it.attempts() + 1, Since: it.first, Err: err}
	attrs := cl.attrs(slog.Int64(attrOffset, f.Offset), slog.Int("attempt", f.Attempts), slog.Any("error", err))
	delay, asked := Delay(err)
	switch {
	case asked:
		cl.run.log.Debug("einmal: a message is parked until its next attempt", append(attrs, slog.Duration("delay", delay))...)
	case cl.topic.onFailure == Stop:
		cl.run.log.Error("einmal: a message failed, and OnFailure is Stop", attrs...)
		cl.run.stop(&StopError{Topic: cl.topic.name, Partition: cl.partition, Offset: f.Offset, Err: err})
		return f
	default:
		delay = keepTryingDelay(f.Attempts)
		cl.run.log.Warn("einmal: a message failed, what is ordered behind it waits", append(attrs, slog.Duration("delay", delay))...)
	}
	f.RetryAt = time.Now().Add(max(0, delay))
	return f
}
