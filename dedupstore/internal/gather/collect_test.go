package gather

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// collecting has the model's functions hand in keys. look sees them before they are written, and may be nil.
func collecting(m *model, look func(ctx context.Context, keys []dedupstore.Key) error) *Collecting[*modelTx,
	dedupstore.Key] {
	return &Collecting[*modelTx, dedupstore.Key]{
		Backend: m,
		Flush: func(ctx context.Context, tx *modelTx, keys []dedupstore.Key) error {
			if look != nil {
				if err := look(ctx, keys); err != nil {
					return err
				}
			}
			for _, k := range keys {
				tx.write(k)
			}
			return nil
		},
		Limit:  time.Minute,
		Done:   func(ctx context.Context, _ error) error { return ctx.Err() },
		Inside: func(ctx context.Context) context.Context { return ctx },
	}
}

// handIn has n calls wait for a group behind a first one, in their order, and returns their answers.
func handIn(t *testing.T, m *model, size, n int, contextOf func(i int) context.Context,
	look func(context.Context, []dedupstore.Key) error) []answer {
	t.Helper()
	g := New(Collect(collecting(m, look)), Config{Size: size, Side: 1, AtOnce: true})
	answers := make([]answer, n)
	hold := make(chan struct{})
	var calls sync.WaitGroup
	once := func(ctx context.Context, k dedupstore.Key, wait <-chan struct{}) (a answer) {
		defer func() { _ = recover() }()
		a.ran, a.err = g.Once(ctx, k, func(_ context.Context, rows *dedupstore.Rows[dedupstore.Key]) error {
			if wait != nil {
				<-wait
			}
			rows.Add(k)
			return nil
		})
		a.returned = true
		return a
	}
	calls.Go(func() { once(t.Context(), key("first"), hold) })
	synctest.Wait()
	for i := range n {
		calls.Go(func() { answers[i] = once(contextOf(i), name(i), nil) })
		synctest.Wait()
	}
	close(hold)
	calls.Wait()
	return answers
}

func always(t *testing.T) func(int) context.Context {
	t.Helper()
	return func(int) context.Context { return t.Context() }
}

// All rows of a group are written at once, in the order of the calls.
func TestRowsOfAGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		var sizes []int
		answers := handIn(t, m, 100, 50, always(t), func(_ context.Context, keys []dedupstore.Key) error {
			sizes = append(sizes, len(keys))
			return nil
		})
		for i, a := range answers {
			if !a.ran || a.err != nil {
				t.Errorf("call %d: %+v", i, a)
			}
		}
		if !slices.Equal(sizes, []int{1, 50}) {
			t.Errorf("%v rows were written at once, want 1 and 50", sizes)
		}
		for i, k := range m.order[1:] {
			if k != name(i) {
				t.Fatalf("row %d is that of %v", i, k)
			}
		}
	})
}

// Who is to blame is found by halving, also where the function that writes panics. The others take effect, each once
// and in order.
func TestRowsHalve(t *testing.T) {
	t.Parallel()
	for ill, fails := range map[string]func(){"error": func() {}, "panic": func() { panic("it cannot write") }} {
		t.Run(ill, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t)
				answers := handIn(t, m, 64, 64, always(t), func(_ context.Context, keys []dedupstore.Key) error {
					if slices.Contains(keys, name(37)) {
						fails()
						return errFunction
					}
					return nil
				})
				for i, a := range answers {
					switch {
					case i != 37:
						if !a.ran {
							t.Errorf("call %d: %+v", i, a)
						}
					case a.returned != (ill == "error") || a.returned && !errors.Is(a.err, errFunction):
						t.Errorf("the call to blame: %+v", a)
					}
				}
				if len(m.order) != 64 || m.effects[name(37)] != 0 {
					t.Errorf("%d effects, want 64 without that of 37: %v", len(m.order), m.order)
				}
			})
		})
	}
}

// The call whose context ends while rows are written is to blame for it, and the group goes on without it.
func TestRowsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		writes, began := 0, time.Now()
		answers := handIn(t, m, 50, 50, func(i int) context.Context {
			if i == 20 {
				return ctx
			}
			return t.Context()
		}, func(ctx context.Context, keys []dedupstore.Key) error {
			if writes++; slices.Contains(keys, name(20)) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		for i, a := range answers {
			if i == 20 && !errors.Is(a.err, context.DeadlineExceeded) || i != 20 && !a.ran {
				t.Errorf("call %d: %+v", i, a)
			}
		}
		if writes > 4 { // the first call, the group, and what is left of it in two halves
			t.Errorf("%d writes", writes)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v: the rows were written on after the call had ended", took)
		}
	})
}

// Writing that takes longer than the limit ends, and halving finds the rows that hold it up.
func TestRowsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		answers := handIn(t, newModel(t), 50, 50, func(i int) context.Context {
			if i == 20 {
				return ctx
			}
			return t.Context()
		}, func(ctx context.Context, keys []dedupstore.Key) error {
			if !slices.Contains(keys, name(20)) {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); len(keys) > 1 && took > time.Minute {
				t.Errorf("%d rows were written for %v", len(keys), took)
			}
			return ctx.Err()
		})
		for i, a := range answers {
			if i == 20 && !errors.Is(a.err, context.DeadlineExceeded) || i != 20 && !a.ran {
				t.Errorf("call %d: %v, %v", i, a.ran, a.err)
			}
		}
	})
}

// A call that leaves before its function has run has its record taken back, and hands in nothing.
func TestRowsOfOneThatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+100*time.Microsecond) // in the midst of BEGIN, which takes 300
		defer cancel()
		g := New(Collect(collecting(m, nil)), Config{Size: 50, Side: 1, AtOnce: true})
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				its := t.Context()
				if i == 7 {
					its = ctx
				}
				if i > 0 { // 0 is alone, and takes a second
					time.Sleep(time.Millisecond)
				}
				ran, err := g.Once(its, name(i), func(_ context.Context, rows *dedupstore.Rows[dedupstore.Key]) error {
					if i == 0 {
						time.Sleep(time.Second - 600*time.Microsecond) // BEGIN before it and COMMIT behind it
					}
					rows.Add(name(i))
					return nil
				})
				if ran != (i != 7) || (err != nil) != (i == 7) {
					t.Errorf("call %d: %v, %v", i, ran, err)
				}
			})
		}
		calls.Wait()
		if m.records[name(7)] || m.effects[name(7)] != 0 || len(m.records) != 19 {
			t.Errorf("%d records, of the one that has left: %v", len(m.records), m.records[name(7)])
		}
	})
}

// A call whose context has ended when its function returns has failed.
func TestRowsOfOneThatIsDone(t *testing.T) {
	t.Parallel()
	for what, its := range map[string]error{"and returned nil": nil, "and failed": errFunction} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tx := &collectingTx[*modelTx, dedupstore.Key]{Collecting: collecting(newModel(t), nil),
				members: make([]handedIn[dedupstore.Key], 1)}
			ctx, cancel := context.WithCancel(t.Context())
			err := tx.Run(ctx, 0, func(_ context.Context, rows *dedupstore.Rows[dedupstore.Key]) error {
				rows.Add(name(0))
				cancel()
				return its
			})
			if !errors.Is(err, context.Canceled) || tx.members[0].rows != nil {
				t.Errorf("Run() = %v, with rows %v", err, tx.members[0].rows)
			}
		})
	}
}
