package storetest

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

var errOfFunction = errors.New("the function's own error")

func (s *suite[Tx]) failure() {
	k := key("failure")
	ran, err := s.once(s.Store, k, func(ctx context.Context, tx Tx) error {
		return errors.Join(s.Write(ctx, tx, "failure"), errOfFunction)
	})
	if !errors.Is(err, errOfFunction) {
		s.t.Errorf("the error does not wrap the function's: %v", err)
	}
	s.wantRolledBack(ran, err, k, "failure")
}

func (s *suite[Tx]) panics() {
	k := key("panic")
	c := s.wait(s.start(s.ctx, s.Store, k, func(ctx context.Context, tx Tx) error {
		if err := s.Write(ctx, tx, "panic"); err != nil {
			return err
		}
		panic(errOfFunction)
	}), k)
	if c.panicked != any(errOfFunction) {
		s.t.Errorf("the panic did not go on: recovered %v, returned %v with the error %v", c.panicked, c.returned, c.err)
	}
	s.wantEffects("panic", 0)
	s.wantRan(k, "panic")
}

func (s *suite[Tx]) goexit() {
	k := key("goexit")
	c := s.wait(s.start(s.ctx, s.Store, k, func(ctx context.Context, tx Tx) error {
		if err := s.Write(ctx, tx, "goexit"); err != nil {
			return err
		}
		runtime.Goexit()
		return nil
	}), k)
	if c.returned || c.panicked != nil {
		s.t.Errorf("the goroutine did not end: returned %v with the error %v, recovered %v", c.returned, c.err, c.panicked)
	}
	s.wantEffects("goexit", 0)
	s.wantRan(k, "goexit")
}

// contextDone has a function that does not notice, and one that does and swallows it.
func (s *suite[Tx]) contextDone() {
	for name, after := range map[string]func(ctx context.Context, tx Tx){
		"unnoticed": func(context.Context, Tx) {},
		"swallowed": func(ctx context.Context, tx Tx) { _ = s.Write(ctx, tx, "swallowed") },
	} {
		ctx, cancel := context.WithCancelCause(s.ctx)
		ran, err := s.onceWith(ctx, s.Store, key(name), func(ctx context.Context, tx Tx) error {
			if err := s.Write(ctx, tx, name); err != nil {
				return err
			}
			cancel(errOfFunction)
			if ctx.Err() == nil {
				s.t.Error("the function's context does not end with the call's")
			}
			after(ctx, tx)
			return nil
		})
		if !errors.Is(err, errOfFunction) {
			s.t.Errorf("%s: the error does not wrap the context's cause: %v", name, err)
		}
		s.wantRolledBack(ran, err, key(name), name)
	}
}

func (s *suite[Tx]) deadlinePassed() {
	k := key("deadline")
	var ran, wrote bool
	var err error
	for limit := 200 * time.Millisecond; !wrote && limit < time.Minute; limit *= 4 { // a busy machine may need longer to write
		ran, wrote, err = s.pastDeadline(k, limit)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		s.t.Errorf("the error does not wrap context.DeadlineExceeded: %v", err)
	}
	s.wantRolledBack(ran, err, k, "deadline")
}

// pastDeadline has a function write, and return nil when its deadline has passed.
func (s *suite[Tx]) pastDeadline(k dedupstore.Key, limit time.Duration) (ran, wrote bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	ran, err = s.onceWith(ctx, s.Store, k, func(ctx context.Context, tx Tx) error {
		if err := s.Write(ctx, tx, "deadline"); err != nil {
			return err
		}
		wrote = true
		<-ctx.Done()
		return nil
	})
	return ran, wrote, err
}

func (s *suite[Tx]) contextDoneBefore() {
	k := key("done before")
	ctx, cancel := context.WithCancelCause(s.ctx)
	cancel(errOfFunction)
	ran, err := s.onceWith(ctx, s.Store, k, s.writes("done before"))
	if !errors.Is(err, errOfFunction) {
		s.t.Errorf("the error does not wrap the context's cause: %v", err)
	}
	s.wantRolledBack(ran, err, k, "done before")
}

func (s *suite[Tx]) swallowed() {
	for _, name := range slices.Sorted(maps.Keys(s.Spoil)) {
		ran, err := s.once(s.Store, key(name), func(ctx context.Context, tx Tx) error {
			if err := s.Write(ctx, tx, name); err != nil {
				return err
			}
			if err := s.Spoil[name](ctx, tx); err == nil {
				s.t.Errorf("%s: Harness.Spoil reports no error", name)
			}
			return nil
		})
		if err == nil {
			s.t.Errorf("%s: the failure was swallowed by the function, and by the store too", name)
		}
		s.wantRolledBack(ran, err, key(name), name)
	}
}

// ended does not say whether the effect is committed by the way in which the function ends the transaction: only that
// the store does not make it worse.
func (s *suite[Tx]) ended() {
	for _, name := range slices.Sorted(maps.Keys(s.End)) {
		for variant, swallow := range map[string]bool{"": false, ", swallowed": true} {
			effect := name + variant
			ran, err := s.once(s.Store, key(effect), func(ctx context.Context, tx Tx) error {
				if err := s.Write(ctx, tx, effect); err != nil {
					return err
				}
				if err := s.End[name](ctx, tx); !swallow {
					return err
				}
				return nil
			})
			if ran || !errors.Is(err, dedupstore.ErrTxEnded) {
				s.t.Errorf("%s: Once() = %v, %v, want false and an error that wraps ErrTxEnded", effect, ran, err)
			}
			s.wantClass(err, dedupstore.Permanent)
			if _, err := s.once(s.Store, key(effect), s.writes(effect)); err != nil {
				s.t.Errorf("%s: the next attempt: %v", effect, err)
			}
			s.wantEffects(effect, 1)
			s.wantSkipped(key(effect))
		}
	}
}

// lostConnection is noticed whether or not the function passes it on.
func (s *suite[Tx]) lostConnection() {
	for effect, swallow := range map[string]bool{"returned": false, "swallowed": true} {
		k := key("lost " + effect)
		ran, err := s.once(s.Store, k, func(ctx context.Context, tx Tx) error {
			if err := s.Write(ctx, tx, effect); err != nil {
				return err
			}
			err := s.Lose(ctx, tx)
			if err == nil {
				s.t.Error("Harness.Lose reports no error")
			}
			if swallow {
				return nil
			}
			return err
		})
		s.wantClass(err, dedupstore.Unavailable)
		s.wantRolledBack(ran, err, k, effect)
	}
}
