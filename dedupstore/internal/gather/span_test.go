package gather

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Functions that use up the group's time end it; the records of the rest are taken back with the same commit.
func TestSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1})
		results, wait := waiting(t, g, 60, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				time.Sleep(time.Millisecond)
				tx.write(name(i))
				return nil
			}
		})
		wait()
		for i, r := range results {
			if !r.ran {
				t.Errorf("call %d: %+v", i, r)
			}
		}
		if s := g.Stats(); s.RolledBack != 0 || s.Transactions < 4 {
			t.Errorf("Stats() = %+v, want groups of some 20 ms", s)
		}
	})
}

// Functions that wait lose little by groups: they come to run side by side, as they do without.
func TestFunctionsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			callers = 32
			wait    = 2 * time.Millisecond
			trips   = 600 * time.Microsecond // of the model, of which no call can save any
		)
		said := make(chan Change, 10)
		g := New(newModel(t), Config{Size: 200, Side: callers, Changed: func(c Change) { said <- c }})
		var answered, stop atomic.Int64
		var calls sync.WaitGroup
		for caller := range callers {
			calls.Go(func() {
				for i := 0; stop.Load() == 0; i++ {
					k := key(fmt.Sprint(caller, "/", i))
					if _, err := g.Once(t.Context(), k, func(_ context.Context, tx *modelTx) error {
						time.Sleep(wait)
						tx.write(k)
						return nil
					}); err != nil {
						t.Error(err)
					}
					answered.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		before := answered.Load()
		time.Sleep(time.Second)
		if got, single := answered.Load()-before, int64(callers*time.Second/(wait+trips)); got < single*9/10 {
			t.Errorf("%d calls answered in a second, want nearly the %d of single transactions; %+v", got, single, g.Stats())
		}
		stop.Store(1)
		calls.Wait()
		if !g.Stats().Single || len(said) != 1 || <-said != Single {
			t.Errorf("%d changes were told; %+v", len(said), g.Stats())
		}
	})
}

// Groups are as large as their span allows, so that hardly a record is written in vain, and as large as ever when
// functions are fast again.
func TestGroupsAreAsLargeAsTheirSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1})
		var takes, answered, stop atomic.Int64
		var calls sync.WaitGroup
		for caller := range 200 {
			calls.Go(func() {
				for i := 0; stop.Load() == 0; i++ {
					k := key(fmt.Sprint(caller, "/", i))
					if _, err := g.Once(t.Context(), k, func(_ context.Context, tx *modelTx) error {
						time.Sleep(time.Duration(takes.Load()))
						tx.write(k)
						return nil
					}); err != nil {
						t.Error(err)
					}
					answered.Add(1)
				}
			})
		}
		written := func() (n int64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, size := range m.sizes {
				n += int64(size)
			}
			return n
		}
		takes.Store(int64(3 * time.Millisecond))
		time.Sleep(time.Second)
		records, calls0 := written(), answered.Load()
		time.Sleep(10 * time.Second)
		if records, n := written()-records, answered.Load()-calls0; records > n*12/10+100 {
			t.Errorf("%d records were written for %d calls; %+v", records, n, g.Stats())
		}
		takes.Store(int64(10 * time.Microsecond))
		time.Sleep(time.Second)
		if s := g.Stats(); s.Size != 100 {
			t.Errorf("functions are fast again: %+v, want groups of 100", s)
		}
		stop.Store(1)
		calls.Wait()
	})
}
