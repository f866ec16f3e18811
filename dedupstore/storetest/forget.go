package storetest

import (
	"context"
	"errors"

	"github.com/einmal-go/einmal/dedupstore"
)

// forget deletes a record and those of its hand-ons, and nothing else, in the transaction of whoever asks for it.
func (s *suite[Tx]) forget() {
	gone := key("forgotten%_")
	gone.Consumer += "%_" // is no pattern
	stays := []dedupstore.Key{
		{Consumer: gone.Consumer, Event: gone.Event + "2"},
		{Consumer: gone.Consumer + "/retry", Event: gone.Event},
		{Consumer: key("").Consumer + "xx/retry/1m", Event: gone.Event},
		key("another").HandOn("1m"),
	}
	goes := []dedupstore.Key{gone, gone.HandOn("1m"), gone.HandOn("1h")}
	for _, k := range append(stays, goes...) {
		s.wantOnce(k, true)
	}
	if err := s.forgetIn(gone, errOfFunction); !errors.Is(err, errOfFunction) {
		s.t.Errorf("InTx() = %v, want the function's error", err)
	}
	for _, k := range append(stays, goes...) {
		s.wantOnce(k, false)
	}
	if err := s.forgetIn(gone, nil); err != nil {
		s.t.Fatalf("forget: %v", err)
	}
	for _, k := range stays {
		s.wantOnce(k, false)
	}
	for _, k := range goes {
		s.wantOnce(k, true)
	}
	if err := s.forgetIn(key("unknown"), nil); err != nil {
		s.t.Errorf("forget what is not there: %v", err)
	}
	if err := s.forgetIn(dedupstore.Key{Consumer: gone.Consumer}, nil); !errors.Is(err, dedupstore.ErrInvalidKey) {
		s.t.Errorf("forget an invalid key: %v", err)
	}
}

// wantOnce expects that a function runs under k, or that it does not.
func (s *suite[Tx]) wantOnce(k dedupstore.Key, want bool) {
	s.t.Helper()
	ran, err := s.Store.Once(s.ctx, k, func(context.Context, Tx) error { return nil })
	if err != nil || ran != want {
		s.t.Errorf("%v: Once() = %v, %v, want %v", k, ran, err, want)
	}
}

// forgetIn forgets k in a transaction whose function then returns then.
func (s *suite[Tx]) forgetIn(k dedupstore.Key, then error) error {
	transactor, _ := s.Store.(dedupstore.Transactor[Tx])
	forgetter, _ := s.Store.(dedupstore.Forgetter[Tx])
	return transactor.InTx(s.ctx, func(ctx context.Context, tx Tx) error {
		if err := forgetter.Forget(ctx, tx, k); err != nil {
			return err
		}
		return then
	})
}
