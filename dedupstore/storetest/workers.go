package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

const (
	workerCount = 32
	workerKeys  = 24
)

// workers has every worker bring every key to its end, in an order of its own, and with mishaps.
func (s *suite[Tx]) workers() {
	seed := rand.Uint64()
	s.t.Logf("seed %d", seed)
	stores := []dedupstore.Store[Tx]{s.Store}
	for _, other := range []dedupstore.Store[Tx]{s.Other, s.Hasty} {
		if other != nil {
			stores = append(stores, other)
		}
	}
	var ran [workerKeys]atomic.Int64
	for n := range uint64(workerCount) {
		s.calls.Go(func() {
			w := worker[Tx]{suite: s, rnd: rand.New(rand.NewPCG(seed, n)), stores: stores}
			for _, i := range w.rnd.Perm(workerKeys) {
				ran[i].Add(w.settle(i))
			}
		})
	}
	if !s.within(s.calls.Wait) {
		s.t.Fatalf("%d workers were not through with %d keys after %v", workerCount, workerKeys, s.limit)
	}
	for i := range ran {
		s.wantEffects(effectOf(i), 1)
		if n := ran[i].Load(); n > 1 { // none where the outcome of the one that ran was unknown
			s.t.Errorf("for one key, %d calls say that they ran", n)
		}
	}
}

type worker[Tx any] struct {
	*suite[Tx]
	rnd    *rand.Rand
	stores []dedupstore.Store[Tx]
}

func effectOf(i int) string { return fmt.Sprintf("effect %d", i) }

// settle calls Once until it returns no error, and returns how often it said ran.
func (w *worker[Tx]) settle(i int) (ran int64) {
	k := key(fmt.Sprintf("of worker %d", i))
	for attempt := 0; w.ctx.Err() == nil; attempt++ {
		ok, err := w.attempt(k, effectOf(i))
		if ok {
			ran++
		}
		if err == nil {
			return ran
		}
		if strings.Contains(err.Error(), k.Event) {
			w.t.Errorf("the error repeats the event's id: %v", err)
		}
	}
	w.t.Errorf("key %d was not settled in time", i)
	return ran
}

// attempt calls Once, in one of three cases with a mishap.
func (w *worker[Tx]) attempt(k dedupstore.Key, effect string) (ran bool, err error) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var result error
	after := func() {}
	switch w.rnd.IntN(12) {
	case 0:
		result = errOfFunction
	case 1:
		after = cancel
	case 2:
		after = func() { panic(errOfFunction) }
	case 3:
		var cancelSoon func()
		ctx, cancelSoon = context.WithTimeout(ctx, time.Duration(w.rnd.IntN(3000))*time.Microsecond)
		defer cancelSoon()
	}
	defer func() {
		if p := recover(); p != nil {
			ran, err = false, fmt.Errorf("panic: %v", p)
		}
	}()
	store := w.stores[w.rnd.IntN(len(w.stores))]
	return store.Once(ctx, k, func(ctx context.Context, tx Tx) error {
		if err := w.Write(ctx, tx, effect); err != nil {
			return err
		}
		after()
		return result
	})
}
