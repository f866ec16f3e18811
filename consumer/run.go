package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// running is a Consumer from the moment at which all servers have answered, until Run returns.
type running struct {
	*Consumer
	log      *slog.Logger
	client   *groupClient
	ctx      context.Context // ends with the caller's, or by stop
	stop     context.CancelCauseFunc
	handlers context.Context // carries the caller's values; ends by Abort, or when Run returns

	cancelHandlers context.CancelCauseFunc
	drains         chan struct{} // closed when draining has begun everywhere

	hooks      *hookRunner
	load       load
	noMetadata atomic.Bool // the broker takes none of the size that is needed
	watcher    sync.WaitGroup
	unwatch    context.CancelFunc

	ids        map[string]TopicID // of the topics, as of the last session; written between sessions only
	partitions map[string]int     // the most that each topic has had; used by a session and its watch, one after the other

	stuckMu     sync.Mutex
	stuckClaims []*claim
}

// consume is a member of the group until ctx is done, the broker refuses this member for good, or OnFailure or OnStuck
// stop it. In between it may leave for a while, see LeaveGroup.
func (r *running) consume() error {
	for r.ctx.Err() == nil {
		if err := r.member(); err != nil {
			return err
		}
		if r.ctx.Err() == nil {
			r.awaitStuck()
		}
	}
	switch cause := context.Cause(r.ctx); {
	case errors.Is(cause, ErrHandlersStuck), errors.Is(cause, ErrOutOfRange):
		return cause
	default:
		if stopped, ok := errors.AsType[*StopError](cause); ok {
			return stopped
		}
		return nil
	}
}

// awaitStuck waits, out of the group, until the handlers have returned for which it was left.
func (r *running) awaitStuck() {
	r.change(Left, Running)
	for {
		if r.stuckError() == nil {
			r.log.Info("einmal: the stuck handlers have returned, joining the group again")
			return
		}
		if !pause(r.ctx, stuckPoll) {
			return
		}
	}
}

const stuckPoll = 100 * time.Millisecond

// close ends what run began, and closes the connections. It is called when all memberships have ended.
func (r *running) close() {
	r.stop(nil)
	<-r.drains
	r.unwatch()
	r.cancelHandlers(nil)
	r.watcher.Wait()
	if !r.hooks.close() {
		r.log.Warn("einmal: a hook has not returned")
	}
	if !within(closeTimeout, func() { _ = r.client.Close() }) {
		r.dialer.End()
	}
}

// within reports whether f returned in time. If not, it goes on.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return waitFor(done, d)
}

// stuck remembers a claim whose handlers ignore their contexts.
func (r *running) stuck(cl *claim) {
	r.log.Error("einmal: handlers did not return after their context was cancelled; their messages are delivered again",
		slog.Any("messages", cl.stillRunning()))
	r.stuckMu.Lock()
	defer r.stuckMu.Unlock()
	r.stuckClaims = append(r.stuckClaims, cl)
}

// stuckNow returns the claims whose handlers still have not returned, and forgets the others. They have ended, but what
// runs in them holds places, and the processing limit goes on for it.
func (r *running) stuckNow() []*claim {
	r.stuckMu.Lock()
	defer r.stuckMu.Unlock()
	r.stuckClaims = slices.DeleteFunc(r.stuckClaims, func(cl *claim) bool { return len(cl.stillRunning()) == 0 })
	return slices.Clone(r.stuckClaims)
}

func (r *running) stuckError() error {
	var names []string
	for _, cl := range r.stuckNow() {
		names = append(names, cl.stillRunning()...)
	}
	return stuckError(names)
}
