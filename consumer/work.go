package consumer

import (
	"context"
	"log/slog"
	"time"
)

// attempt runs the chain once.
func (cl *claim) attempt(it *item) error {
	a := it.current
	defer a.ctx.end()
	a.fill(it.rec, &cl.topic.names)
	a.msg.TopicID = cl.topicID
	return cl.topic.attempt(&a.ctx, &a.msg, &it.history)
}

// finish takes the outcome of an attempt and returns what the same worker may run next in this claim.
func (cl *claim) finish(w *workers, it *item, err error) (next *item) {
	f := cl.judge(it, err)
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.running.remove(it)
	it.current = nil
	turn := it.turn
	switch {
	case err == nil:
		cl.complete(it, now)
	case f != nil:
		it.note(f) // at the end of the claim too: it is carried to the next one
		if f.waits {
			it.due = f.RetryAt
		} else {
			cl.lastErr = f.Err
		}
		if !cl.stopped {
			cl.park(it, f.RetryAt)
		}
	}
	if !w.contended.Load() || now.Sub(turn) < minTurn {
		next = cl.start(w, turn, now)
	} else if cl.begins() && cl.queue.hasReady(w.seat) {
		w.wait(cl)
	}
	cl.dispatch() // the end of one message may let several run
	if next == nil || now.Sub(cl.settled) > settleEvery {
		cl.settle(now)
	}
	if cl.stopped && err != nil {
		cl.releaseTrains()
	}
	if cl.stopped && len(cl.running) == 0 {
		close(cl.idle)
	}
	return next
}

// minTurn is how long a worker stays with a claim although others wait for one: changing costs more than a fast
// handler.
const minTurn = time.Millisecond

// complete takes a message off the books.
func (cl *claim) complete(it *item, now time.Time) {
	size := it.size()
	cl.open.remove(it)
	cl.held--
	cl.bytes -= size
	cl.progress = now
	cl.queue.finished(it)
	if err := cl.tracker.Done(it.offset); err != nil {
		cl.run.log.Error("einmal: a message finished that was not open", cl.attrs(slog.Any("error", err))...)
	}
	cl.free.put(it)
	cl.resumeIfLow()
}

// settleEvery bounds how long a finished message waits to be marked while others follow it without a pause; behind one
// that takes its time the watchdog marks it, within a second. A mark costs more than a fast handler, and is committed
// once a second.
const settleEvery = 10 * time.Millisecond

// settle marks the end of the contiguous prefix of finished messages, and reports to the load what is no longer held.
// It is called under the lock.
func (cl *claim) settle(now time.Time) {
	cl.settled = now
	if cl.fenced {
		return
	}
	cl.mark(now, false)
	cl.report()
}

// mark marks, and takes what is to be carried along. It is called under the lock.
func (cl *claim) mark(now time.Time, end bool) {
	changed := cl.carry(now, end)
	if offset, ok := cl.tracker.Committable(); ok && offset > cl.marked {
		cl.marked = offset
		cl.commits.marked(offset, now)
		cl.session.MarkOffset(cl.topic.name, cl.partition, offset, cl.metadata())
		return
	}
	if changed {
		cl.commitAgain()
	}
}

// park holds a message that failed, or is not due, until its next attempt. Nobody waits with it.
func (cl *claim) park(it *item, until time.Time) {
	cl.queue.park(it)
	if until.IsZero() {
		cl.parked[it] = nil // OnFailure is Stop
		return
	}
	cl.parkings++
	it.parking = cl.parkings
	number := it.parking
	cl.parked[it] = time.AfterFunc(time.Until(until), func() { cl.unpark(it, number) })
}

// unpark is called when the time is over for which the item was parked, the parking with that number. TryNow may have
// come before, and the item be parked again.
func (cl *claim) unpark(it *item, number int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if _, parked := cl.parked[it]; parked && it.parking == number {
		cl.unparked(it)
	}
}

// unparked lets a parked message run again. It is called under the lock.
func (cl *claim) unparked(it *item) {
	if cl.stopped {
		return
	}
	delete(cl.parked, it)
	cl.queue.unpark(it)
	cl.dispatch()
}

// judge says what becomes of a message after an attempt: nil if nothing has to be done. It runs without the lock.
func (cl *claim) judge(it *item, err error) *Failing {
	if err == nil {
		cl.logDone(&it.current.msg)
		return nil
	}
	if context.Cause(&it.current.ctx) == errDrainOver { //nolint:errorlint // this very cause: it was released, see releaseTrains
		return nil
	}
	f := cl.topic.judge(cl.ctx, it.offset, it.history, err)
	if f == nil {
		return nil
	}
	cl.logFailed(f, &it.current.msg)
	if f.RetryAt.IsZero() {
		cl.run.stop(newStopError(&it.current.msg, f.Err))
	}
	return f
}

// runningItems is the set of items in work.
type runningItems []*item

func (r *runningItems) add(it *item) {
	it.slot = len(*r)
	*r = append(*r, it)
}

func (r *runningItems) remove(it *item) {
	last := len(*r) - 1
	moved := (*r)[last]
	(*r)[it.slot], moved.slot = moved, it.slot
	(*r)[last] = nil
	*r = (*r)[:last]
}
