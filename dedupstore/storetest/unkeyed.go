package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/einmal-go/einmal/dedupstore"
)

// unkeyed tries what must not be committed, and what must.
func (s *suite[Tx]) unkeyed() {
	for name, spoil := range s.Spoil {
		s.wantNoTx("swallowed: "+name, nil, func(ctx context.Context, tx Tx) error {
			_ = spoil(ctx, tx)
			return nil
		})
	}
	s.wantNoTx("error", errOfFunction, func(context.Context, Tx) error { return errOfFunction })
	s.wantNoTx("panic", errOfFunction, func(context.Context, Tx) error { panic(errOfFunction) })
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.wantNoTxIn(ctx, "context done", errOfFunction, func(context.Context, Tx) error {
		cancel(errOfFunction)
		return nil
	})
	s.wantNoTxIn(ctx, "context done before", errOfFunction, func(context.Context, Tx) error { return nil })
	for name := range maps.Keys(s.End) {
		effect := "ended: " + name
		err := s.inTx(s.ctx, s.Store, effect, s.End[name])
		if !errors.Is(err, dedupstore.ErrTxEnded) {
			s.t.Errorf("%s: InTx() = %v, want an error that wraps ErrTxEnded", effect, err)
		}
	}
	if s.Cut != nil {
		for _, at := range []Moment{BeforeCommit, AfterCommit, CommitHangs} {
			err := s.inTx(s.ctx, s.Cut(s.t, at), at.String(), nil)
			if !errors.Is(err, dedupstore.ErrOutcomeUnknown) {
				s.t.Errorf("%s: InTx() = %v, want an error that wraps ErrOutcomeUnknown", at, err)
			}
		}
	}
	for range 2 { // a transaction leaves nothing behind
		if err := s.inTx(s.ctx, s.Store, "committed", nil); err != nil {
			s.t.Errorf("InTx: %v", err)
		}
	}
	s.wantEffects("committed", 2)
}

// inTx writes effect and calls then, which may be nil, in one transaction. A panic becomes an error.
func (s *suite[Tx]) inTx(ctx context.Context, store dedupstore.Store[Tx], effect string,
	then function[Tx]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err, _ = v.(error)
		}
	}()
	transactor, ok := store.(dedupstore.Transactor[Tx])
	if !ok {
		return fmt.Errorf("%T is no Transactor", store)
	}
	return transactor.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := s.Write(ctx, tx, effect); err != nil || then == nil {
			return err
		}
		return then(ctx, tx)
	})
}

func (s *suite[Tx]) wantNoTx(effect string, wraps error, then function[Tx]) {
	s.t.Helper()
	s.wantNoTxIn(s.ctx, effect, wraps, then)
}

// wantNoTxIn expects a rollback, and an error that wraps the given one.
func (s *suite[Tx]) wantNoTxIn(ctx context.Context, effect string, wraps error, then function[Tx]) {
	s.t.Helper()
	err := s.inTx(ctx, s.Store, effect, then)
	if err == nil || wraps != nil && !errors.Is(err, wraps) {
		s.t.Errorf("%s: InTx() = %v, want an error that wraps %v", effect, err, wraps)
	}
	s.wantEffects(effect, 0)
}
