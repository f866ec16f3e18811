package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
)

// OnStuck is what happens when a handler has not returned although its context was cancelled for Topic.ProcessingLimit.
// Nothing in Go can end it. Kafka does not notice: the member goes on sending heartbeats, and its partitions would wait
// for ever.
type OnStuck int

const (
	// StopConsumer ends the Consumer: Run returns an error that wraps ErrHandlersStuck, so that the process can be
	// restarted.
	StopConsumer OnStuck = iota
	// LeaveGroup leaves the group, so that other members take the partitions over, and joins again when the handlers have
	// returned. Run goes on, Ready is false meanwhile.
	LeaveGroup
)

// DefaultProcessingLimit is Kafka's max.poll.interval.ms, the time after which the Java client gives up on its handler.
const DefaultProcessingLimit = 5 * time.Minute

// stuckGrace is how long a handler may take to return after its context was cancelled for the processing limit, before
// OnStuck applies; less where the limit itself is less.
const stuckGrace = 30 * time.Second

// ErrProcessingLimit is the cause of the cancellation of a handler's context by Topic.ProcessingLimit.
var ErrProcessingLimit = errtype.New("timeout", "einmal: the handler ran longer than Topic.ProcessingLimit")

// errLeave is the cause with which a membership ends for LeaveGroup.
var errLeave = errors.New("einmal: leaving the group: handlers are stuck")

// watch looks after the handlers' time until ctx is done.
func (r *running) watch(ctx context.Context) {
	ticker := time.NewTicker(r.watchEvery())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.tick(now)
			for _, cl := range append(r.allClaims(), r.stuckNow()...) {
				cl.watch(now)
			}
		}
	}
}

// watchEvery is how often it is looked: four times in the shortest processing limit, and each second at least.
func (r *running) watchEvery() time.Duration {
	every := time.Second
	for _, t := range r.topics {
		if t.limit > 0 {
			every = min(every, t.limit/4)
		}
	}
	return max(every, time.Millisecond)
}

// watch marks what finished before a message that takes its time, and cancels what takes too long.
func (cl *claim) watch(now time.Time) {
	late, stuck := cl.late(now)
	for offset, a := range late {
		cl.run.log.Error("einmal: a handler ran longer than the processing limit, its context is cancelled",
			cl.attrs(slog.Int64(attrOffset, offset), seconds("limit", cl.topic.limit))...)
		a.ctx.cancel(ErrProcessingLimit)
	}
	if stuck {
		cl.giveUp()
	}
}

// late returns the attempts that have come to the processing limit by now, by offset, and whether one has not returned
// although it was cancelled for it.
func (cl *claim) late(now time.Time) (late map[int64]*attempting, stuck bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if now.Sub(cl.settled) > settleEvery {
		cl.settle(now)
	}
	cl.countPause(now)
	cl.tellAhead()
	limit := cl.topic.limit
	if limit == 0 {
		return nil, false
	}
	for _, it := range cl.running {
		if it.waits() {
			it.started = now // its time begins with its turn
			continue
		}
		ran := now.Sub(it.started)
		switch {
		case it.overrun && !it.gaveUp && ran > limit+min(limit, stuckGrace):
			it.gaveUp, stuck = true, true
		case !it.overrun && ran > limit:
			it.overrun = true
			if late == nil {
				late = map[int64]*attempting{}
			}
			late[it.offset] = it.current
		}
	}
	return late, stuck
}

// giveUp applies OnStuck.
func (cl *claim) giveUp() {
	names := cl.stillRunning()
	if cl.topic.onStuck == LeaveGroup {
		cl.run.log.Error("einmal: handlers ignore that their context is cancelled; leaving the group until they return",
			slog.Any("messages", names))
		cl.leave(errLeave)
		return
	}
	cl.run.log.Error("einmal: handlers ignore that their context is cancelled; stopping", slog.Any("messages", names))
	cl.run.stop(fmt.Errorf("%w: they ran longer than the processing limit: %w", stuckError(names), ErrProcessingLimit))
}
