package consumer

import (
	"log/slog"
	"runtime/debug"
	"time"
)

// Hooks are called when something happens to a partition or to the membership, for metrics and tests. All are optional.
// They run one after the other on a goroutine of their own, in the order in which things happened, so they may call the
// Consumer; what they miss when they are too slow (more than 1,000 events behind) is dropped.
type Hooks struct {
	// Assigned is called when this process begins to hold a partition.
	Assigned func(topic string, partition int32)
	// Revoked is called when it has let go of one, after the drain, which took so long.
	Revoked func(topic string, partition int32, drain time.Duration)
	// Paused is called when a partition is paused because a limit is reached, Resumed when it goes on.
	Paused, Resumed func(topic string, partition int32)
	// OutOfRange is called when fetching could not start at the committed offset, and starts at the given one instead:
	// records were deleted before they were read, or the topic was created again.
	OutOfRange func(topic string, partition int32, offset int64)
	// ShortSession is called when a membership ended less than 10 s after it began; count is how many did so in a row. A
	// growing count means that something makes the group rebalance without end.
	ShortSession func(count int)
}

// partitionHook is one of those that take a partition and no more.
type partitionHook func(topic string, partition int32)

// hookRunner calls the hooks of one Consumer.
type hookRunner struct {
	hooks  Hooks
	log    *slog.Logger
	events chan func()
	done   chan struct{}
}

const hookBacklog = 1000

func newHookRunner(h Hooks, log *slog.Logger) *hookRunner {
	r := &hookRunner{hooks: h, log: log, events: make(chan func(), hookBacklog), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for f := range r.events {
			r.run(f)
		}
	}()
	return r
}

// run contains a hook that panics.
func (r *hookRunner) run(f func()) {
	defer func() {
		if v := recover(); v != nil {
			err := &Panic{Value: v, Stack: debug.Stack()}
			r.log.Error("einmal: a hook panicked", slog.Any("error", err), slog.String(attrStack, string(err.Stack)))
		}
	}()
	f()
}

// close waits for the events that are queued, and reports whether the hooks have returned in time.
func (r *hookRunner) close() bool {
	close(r.events)
	return waitFor(r.done, closeTimeout)
}

func (r *hookRunner) call(f func()) {
	select {
	case r.events <- f:
	default:
	}
}

// partition calls h, if it is set, for the claim's partition.
func (r *hookRunner) partition(h partitionHook, cl *claim) {
	if h != nil {
		r.call(func() { h(cl.topic.name, cl.partition) })
	}
}

func (r *hookRunner) revoked(cl *claim, drain time.Duration) {
	if h := r.hooks.Revoked; h != nil {
		r.call(func() { h(cl.topic.name, cl.partition, drain) })
	}
}

func (r *hookRunner) outOfRange(topic string, partition int32, offset int64) {
	if h := r.hooks.OutOfRange; h != nil {
		r.call(func() { h(topic, partition, offset) })
	}
}

func (r *hookRunner) shortSession(count int) {
	if h := r.hooks.ShortSession; h != nil {
		r.call(func() { h(count) })
	}
}
