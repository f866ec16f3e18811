package storetest

import (
	"context"
	"fmt"

	"github.com/einmal-go/einmal/dedupstore"
)

type contextKey struct{}

func (s *suite[Tx]) firstDelivery() {
	k, runs := key("first"), 0
	ctx := context.WithValue(s.ctx, contextKey{}, "the caller's")
	ran, err := s.onceWith(ctx, s.Store, k, func(ctx context.Context, tx Tx) error {
		runs++
		if ctx.Value(contextKey{}) != "the caller's" {
			s.t.Error("the function's context does not carry the values of the call's")
		}
		if err := s.Write(ctx, tx, "first"); err != nil {
			return err
		}
		if n, err := s.Effects(ctx, "first"); n != 0 || err != nil {
			s.t.Errorf("another session sees the effect %d times before it is committed (error: %v)", n, err)
		}
		return nil
	})
	if !ran || err != nil || runs != 1 {
		s.t.Fatalf("Once() = %v, %v, and the function ran %d times, want true, no error, and once", ran, err, runs)
	}
	s.wantEffects("first", 1)
}

func (s *suite[Tx]) duplicate() {
	const events = 20
	for i := range events {
		s.wantRan(key(fmt.Sprint(i)), fmt.Sprint(i))
		s.wantSkipped(key(fmt.Sprint(i))) // back to back
	}
	for i := range events {
		s.wantSkipped(key(fmt.Sprint(i))) // far apart
		s.wantEffects(fmt.Sprint(i), 1)
	}
}

func (s *suite[Tx]) twoConsumers() {
	k := key("shared")
	other := dedupstore.Key{Consumer: k.Consumer + "2", Event: k.Event}
	s.wantRan(k, "of one")
	s.wantRan(other, "of the other")
	s.wantSkipped(k)
	s.wantSkipped(other)
	s.wantEffects("of one", 1)
	s.wantEffects("of the other", 1)
}

func (s *suite[Tx]) check() {
	if err := s.Store.(dedupstore.Checker).Check(s.ctx); err != nil {
		s.t.Errorf("Check() = %v on the database of the suite", err)
	}
}
