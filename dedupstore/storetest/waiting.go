package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

func (s *suite[Tx]) waitsForCommit()        { s.waits(s.Store, nil) }
func (s *suite[Tx]) waitsForOtherCommit()   { s.waits(s.Other, nil) }
func (s *suite[Tx]) waitsForRollback()      { s.waits(s.Store, errOfFunction) }
func (s *suite[Tx]) waitsForOtherRollback() { s.waits(s.Other, errOfFunction) }

// waiters is how many calls wait for the first one.
const waiters = 3

// waits has a first call on owner that holds its key open and then ends with result, and others on Store that wait for
// it.
func (s *suite[Tx]) waits(owner dedupstore.Store[Tx], result error) {
	k := key("contested")
	held := s.hold(owner, k, "of the owner", result)
	var late [waiters]*call
	for i := range late {
		late[i] = s.start(s.ctx, s.Store, k, func(ctx context.Context, tx Tx) error {
			if held.open.Load() {
				s.t.Error("the function runs while another transaction holds its key")
			}
			return s.Write(ctx, tx, "of a waiter")
		})
	}
	s.awaitWaiting(late[:])
	held.release()

	first := s.wait(held.call, k)
	if first.ran != (result == nil) || !errors.Is(first.err, result) {
		s.t.Errorf("the owner: Once() = %v, %v, want the result %v", first.ran, first.err, result)
	}
	ran := 0
	for _, c := range late {
		if s.wait(c, k); c.err != nil || !c.returned {
			s.t.Errorf("a call that waited: %v, %v", c.err, c.panicked)
		}
		if c.ran {
			ran++
		}
	}
	want := map[bool]int{true: 0, false: 1}[result == nil]
	if ran != want {
		s.t.Errorf("%d of the calls that waited ran, want %d", ran, want)
	}
	s.wantEffects("of the owner", 1-want)
	s.wantEffects("of a waiter", want)
	s.wantSkipped(k)
}

// holder is a call the function of which does nothing until it is released.
type holder struct {
	*call
	open    atomic.Bool
	release func()
}

// hold returns when the function has written effect and holds its key.
func (s *suite[Tx]) hold(store dedupstore.Store[Tx], k dedupstore.Key, effect string, result error) *holder {
	s.t.Helper()
	h, held := s.tryHold(store, k, effect, result)
	if !held {
		s.t.Fatalf("the first call for a key: Once() = %v, %v, and its function did not run", h.ran, h.err)
	}
	return h
}

// holdImpatient is hold on Impatient. A busy machine can leave a transaction alone for longer than its IdleTimeout before
// the function runs: that call fails, and another one is made.
func (s *suite[Tx]) holdImpatient(k dedupstore.Key, effect string) *holder {
	s.t.Helper()
	for deadline := time.Now().Add(s.limit); ; {
		h, held := s.tryHold(s.Impatient, k, effect, nil)
		switch {
		case held:
			return h
		case h.err == nil || time.Now().After(deadline):
			s.t.Fatalf("the first call for a key: Once() = %v, %v, and its function did not run", h.ran, h.err)
		}
	}
}

// tryHold returns when the function has written effect and holds its key, or the call has returned without running it.
func (s *suite[Tx]) tryHold(store dedupstore.Store[Tx], k dedupstore.Key, effect string, result error) (h *holder,
	held bool) {
	s.t.Helper()
	entered, released := make(chan struct{}), make(chan struct{})
	h = &holder{release: func() { close(released) }}
	h.open.Store(true)
	h.call = s.start(s.ctx, store, k, func(ctx context.Context, tx Tx) error {
		err := s.Write(ctx, tx, effect)
		close(entered)
		select {
		case <-released:
		case <-ctx.Done():
		}
		h.open.Store(false)
		return errors.Join(err, result)
	})
	select {
	case <-entered:
		return h, true
	case <-h.done:
		select {
		case <-entered: // both have happened
			return h, true
		default:
			return h, false
		}
	case <-time.After(s.limit):
		s.t.Fatalf("the function of the first call for a key did not start in %v", s.limit)
	}
	return h, false
}

// grace is what a call gets for doing what it must not do, where nobody can tell that it waits.
const grace = 100 * time.Millisecond

// awaitWaiting returns when the calls wait. It fails if one of them returns instead.
func (s *suite[Tx]) awaitWaiting(calls []*call) {
	s.t.Helper()
	enough := time.Now().Add(grace)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		waiting := time.Now().After(enough)
		if s.Waiting != nil {
			n, err := s.Waiting(s.ctx)
			if err != nil {
				s.t.Fatalf("Harness.Waiting: %v", err)
			}
			waiting = n == len(calls)
		}
		for _, c := range calls {
			select {
			case <-c.done:
				s.t.Fatalf("Once() = %v, %v while another transaction holds its key: it must wait", c.ran, c.err)
			default:
			}
		}
		if waiting {
			return
		}
		if time.Since(enough) > s.limit {
			s.t.Fatalf("after %v, not all of %d calls wait", s.limit, len(calls))
		}
	}
}

// cancelledWhileWaiting gives up to wait for a key because the context ends. The event is not to blame for that.
func (s *suite[Tx]) cancelledWhileWaiting() {
	k := key("contested")
	held := s.hold(s.Store, k, "of the owner", errOfFunction)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	waiter := s.start(ctx, s.Store, k, s.writes("of the waiter"))
	s.awaitWaiting([]*call{waiter})
	cancel()
	s.wait(waiter, k)
	if waiter.ran || !errors.Is(waiter.err, context.Canceled) {
		s.t.Errorf("Once() = %v, %v for a context that ends while the call waits, want false and an error that wraps the context's", waiter.ran, waiter.err)
	}
	s.wantClass(waiter.err, dedupstore.Unavailable)
	held.release()
	s.wait(held.call, k)
	s.wantEffects("of the waiter", 0)
	s.wantRan(k, "of the waiter")
}

// frozenOwner holds a key without a sign of life. Its successor must get on, and it must not wake up to commit.
func (s *suite[Tx]) frozenOwner() {
	k := key("frozen")
	frozen := s.holdImpatient(k, "of the frozen")
	for deadline := time.Now().Add(s.limit); ; {
		ran, err := s.once(s.Impatient, k, s.writes("of the successor"))
		if err == nil {
			if !ran {
				s.t.Fatal("the successor skipped: the frozen owner has not committed, and must not any more")
			}
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the successor is still blocked after %v: %v", s.limit, err)
		}
	}
	frozen.release()
	if c := s.wait(frozen.call, k); c.ran || c.err == nil {
		s.t.Errorf("the frozen owner woke up: Once() = %v, %v, want false and an error", c.ran, c.err)
	}
	s.wantEffects("of the frozen", 0)
	s.wantEffects("of the successor", 1)
	s.wantSkipped(k)
}

// heldTooLong gives up to wait for a key, and finds it free later.
func (s *suite[Tx]) heldTooLong() {
	k := key("held")
	held := s.hold(s.Store, k, "of the owner", errOfFunction)
	ran, err := s.once(s.Brief, k, s.writes("of the waiter"))
	if ran || !errors.Is(err, dedupstore.ErrLocked) {
		s.t.Errorf("Once() = %v, %v while another transaction holds the key, want false and an error that wraps ErrLocked",
			ran, err)
	}
	s.wantClass(err, dedupstore.Transient)
	held.release()
	s.wait(held.call, k)
	s.wantEffects("of the owner", 0)
	s.wantRan(k, "of the waiter")
}
