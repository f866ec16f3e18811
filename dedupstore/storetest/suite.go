package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// suite is one case at work.
type suite[Tx any] struct {
	Harness[Tx]
	t     testing.TB
	ctx   context.Context //nolint:containedctx // that of one case, which ends with it
	limit time.Duration   // how long to wait for what must happen
	calls sync.WaitGroup
}

func newSuite[Tx any](t testing.TB, h Harness[Tx], limit time.Duration) *suite[Tx] {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	s := &suite[Tx]{Harness: h, t: t, ctx: ctx, limit: limit}
	t.Cleanup(func() {
		cancel()
		if !s.within(s.calls.Wait) {
			t.Errorf("calls of Once still run %v after their context was cancelled", limit)
		}
	})
	return s
}

// within reports whether f returns before the case's patience ends.
func (s *suite[Tx]) within(f func()) bool {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(s.limit):
		return false
	}
}

// key is the key of most cases, its event long enough to be found in an error.
func key(event string) dedupstore.Key {
	return dedupstore.Key{Consumer: "storetest/consumer", Event: "event-" + event}
}

type function[Tx any] = func(ctx context.Context, tx Tx) error

// writes returns a function that writes effect.
func (s *suite[Tx]) writes(effect string) function[Tx] {
	return func(ctx context.Context, tx Tx) error { return s.Write(ctx, tx, effect) }
}

// call is a call of Once. Its results may be read after wait.
type call struct {
	ran      bool
	err      error
	returned bool // neither panicked nor ended its goroutine
	panicked any

	done chan struct{}
}

// start calls Once in a goroutine of its own.
func (s *suite[Tx]) start(ctx context.Context, store dedupstore.Store[Tx], k dedupstore.Key, fn function[Tx]) *call {
	c := &call{done: make(chan struct{})}
	s.calls.Go(func() {
		defer close(c.done)
		defer func() { c.panicked = recover() }()
		c.ran, c.err = store.Once(ctx, k, fn)
		c.returned = true
	})
	return c
}

// wait returns when the call has ended.
func (s *suite[Tx]) wait(c *call, k dedupstore.Key) *call {
	s.t.Helper()
	select {
	case <-c.done:
	case <-time.After(s.limit):
		s.t.Fatalf("Once has not returned after %v", s.limit)
	}
	if c.err != nil && len(k.Event) > 1 && strings.Contains(c.err.Error(), k.Event) {
		s.t.Errorf("the error repeats the event's id: %v", c.err)
	}
	return c
}

// once calls Once and waits for its results.
func (s *suite[Tx]) once(store dedupstore.Store[Tx], k dedupstore.Key, fn function[Tx]) (ran bool, err error) {
	s.t.Helper()
	return s.onceWith(s.ctx, store, k, fn)
}

func (s *suite[Tx]) onceWith(ctx context.Context, store dedupstore.Store[Tx], k dedupstore.Key,
	fn function[Tx]) (ran bool, err error) {
	s.t.Helper()
	c := s.wait(s.start(ctx, store, k, fn), k)
	if !c.returned {
		s.t.Fatalf("Once did not return: panic %v", c.panicked)
	}
	return c.ran, c.err
}

// wantRan makes a call for k that must run and write effect.
func (s *suite[Tx]) wantRan(k dedupstore.Key, effect string) {
	s.t.Helper()
	if ran, err := s.once(s.Store, k, s.writes(effect)); !ran || err != nil {
		s.t.Fatalf("Once() = %v, %v, want true and no error", ran, err)
	}
	s.wantEffects(effect, 1)
}

// wantSkipped makes a call for k that must not run.
func (s *suite[Tx]) wantSkipped(k dedupstore.Key) {
	s.t.Helper()
	ran, err := s.once(s.Store, k, func(context.Context, Tx) error {
		s.t.Error("the function runs again")
		return nil
	})
	if ran || err != nil {
		s.t.Fatalf("Once() = %v, %v for a key that was recorded, want false and no error", ran, err)
	}
}

// wantRolledBack checks what a call returned that must have left no trace, and that the key can be used.
func (s *suite[Tx]) wantRolledBack(ran bool, err error, k dedupstore.Key, effect string) {
	s.t.Helper()
	if ran || err == nil {
		s.t.Errorf("Once() = %v, %v, want false and an error", ran, err)
	}
	if errors.Is(err, dedupstore.ErrOutcomeUnknown) {
		s.t.Errorf("the outcome is known, the error is %v", err)
	}
	s.wantEffects(effect, 0)
	s.wantRan(k, effect)
	s.wantSkipped(k)
}

func (s *suite[Tx]) wantEffects(effect string, want int) {
	s.t.Helper()
	got, err := s.Effects(s.ctx, effect)
	if err != nil {
		s.t.Fatalf("counting effects: %v", err)
	}
	if got != want {
		s.t.Fatalf("the effect is there %d times, want %d", got, want)
	}
}

func (s *suite[Tx]) wantClass(err error, want dedupstore.Class) {
	s.t.Helper()
	if got := dedupstore.ClassOf(err); got != want {
		s.t.Errorf("the class of the error is %v, want %v: %v", got, want, err)
	}
}
