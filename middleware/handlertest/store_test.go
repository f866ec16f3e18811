package handlertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
)

// Each point lets happen what it says, once, and no more.
func TestPoints(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		at           Point
		ran          bool // the function
		effects      int  // after the failed call
		unknown, err bool
	}{
		{BeforeRecord, false, 0, false, true},
		{AfterRecord, false, 0, false, true},
		{InHandler, true, 1, false, false},
		{AfterHandler, true, 0, false, true},
		{AtCommit, true, 0, true, true},
		{AfterCommit, true, 1, true, true},
	} {
		s, effects, calls := NewStore(memstore.New()), 0, 0
		once := func(event string) (ctxErr error, ran bool, err error) {
			ran, err = s.Once(t.Context(), dedupstore.Key{Consumer: "c", Event: event},
				func(ctx context.Context, tx *memstore.Tx) error {
					calls++
					ctxErr = context.Cause(ctx)
					tx.OnCommit(func() { effects++ })
					return nil
				})
			return ctxErr, ran, err
		}
		s.Fail(test.at, 2)
		if _, ran, err := once("first"); !ran || err != nil {
			t.Errorf("%v: the call before: %v, %v", test.at, ran, err)
		}
		effects, calls = 0, 0
		ctxErr, ran, err := once("e")
		if (err != nil) != test.err || test.err && !errors.Is(err, ErrInjected) ||
			errors.Is(err, dedupstore.ErrOutcomeUnknown) != test.unknown || ran != !test.err {
			t.Errorf("%v: %v, %v", test.at, ran, err)
		}
		if (calls == 1) != test.ran || effects != test.effects || errors.Is(ctxErr, ErrInjected) != (test.at == InHandler) {
			t.Errorf("%v: %d calls, %d effects, context %v", test.at, calls, effects, ctxErr)
		}
		if _, ran, err := once("e"); ran != (test.effects == 0) || err != nil || effects != 1 {
			t.Errorf("%v: the call after: %v, %v, %d effects", test.at, ran, err, effects)
		}
		if want := []dedupstore.Key{{Consumer: "c", Event: "first"}, {Consumer: "c", Event: "e"},
			{Consumer: "c", Event: "e"}}; !slices.Equal(s.Keys(), want) {
			t.Errorf("%v: keys %v", test.at, s.Keys())
		}
	}
}

// The function's own error is not covered, and is not taken for the injected one.
func TestErrorOfTheFunction(t *testing.T) {
	t.Parallel()
	own := errors.New("no stock")
	for _, at := range []Point{InHandler, AfterHandler, AtCommit, AfterCommit} {
		s := NewStore(memstore.New())
		s.Fail(at, 1)
		ran, err := s.Once(t.Context(), dedupstore.Key{Consumer: "c", Event: "e"},
			func(context.Context, *memstore.Tx) error { return own })
		if ran || !errors.Is(err, own) || errors.Is(err, ErrInjected) || errors.Is(err, dedupstore.ErrOutcomeUnknown) {
			t.Errorf("%v: %v, %v", at, ran, err)
		}
	}
}

type checking struct {
	*memstore.Store
	err error
}

func (c checking) Check(context.Context) error { return c.err }

func TestCheckIsPassedOn(t *testing.T) {
	t.Parallel()
	missing := errors.New("the table is missing")
	if err := NewStore[*memstore.Tx](checking{memstore.New(), missing}).Check(t.Context()); !errors.Is(err, missing) {
		t.Errorf("got %v", err)
	}
	if err := NewStore(memstore.New()).Check(t.Context()); err != nil {
		t.Errorf("a store that does not check: %v", err)
	}
}

func TestPointsAreNamed(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(points, Point(0)); got != "[before the record after the record in the handler after the handler at COMMIT after COMMIT] Point(0)" {
		t.Error(got)
	}
}
