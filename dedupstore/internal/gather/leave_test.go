package gather

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/internal/turn"
)

// A function that ignores the end of its context does not keep the others.
func TestHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1})
		release := make(chan struct{})
		hung := make(chan struct{})
		results, wait := waiting(t, g, 10, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				tx.write(name(i))
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			defer close(hung)
			ran, err := g.Once(ctx, key("hangs"), func(context.Context, *modelTx) error {
				<-release
				return nil
			})
			if ran || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call that hung: %v, %v", ran, err)
			}
		}()
		synctest.Wait()
		wait()
		for i, r := range results {
			if !r.ran {
				t.Errorf("call %d: %+v", i, r)
			}
		}
		close(release)
		<-hung
		if m.open != 0 {
			t.Errorf("%d transactions are open", m.open)
		}
	})
}

// A call whose context ends while it waits leaves at once, and its record is not committed.
func TestLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1, Span: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		inGroup := make(chan struct{})
		results, wait := waiting(t, g, 3, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				if i == 1 {
					close(inGroup)
					time.Sleep(time.Minute)
				}
				tx.write(name(i))
				return nil
			}
		})
		left := make(chan error)
		go func() {
			_, err := g.Once(ctx, key("leaves"), func(context.Context, *modelTx) error { return errors.New("it runs") })
			left <- err
		}()
		synctest.Wait()
		go wait()
		<-inGroup
		before := time.Now()
		cancel()
		if err := <-left; !errors.Is(err, errWaiting) || time.Since(before) > time.Second {
			t.Errorf("the call that left: %v after %v", err, time.Since(before))
		}
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if m.records[key("leaves")] || !m.records[name(2)] || !results[2].ran {
			t.Errorf("records %v", m.records)
		}
	})
}

// A call whose function has run, and whose context ends before its group fails, does not wait for a turn that never
// comes.
func TestLeavesAfterItsFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1, Span: time.Hour})
		var lane, other turn.Lane
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		var calls sync.WaitGroup
		once := func(ctx context.Context, event string, fn func(*modelTx) error, want error) {
			calls.Go(func() {
				ran, err := g.Once(ctx, key(event), func(_ context.Context, tx *modelTx) error {
					tx.write(key(event))
					return fn(tx)
				})
				if ran != (want == nil) || !errors.Is(err, want) {
					t.Errorf("%s: Once() = %v, %v", event, ran, err)
				}
			})
			synctest.Wait() // they come in this order
		}
		succeeds := func(*modelTx) error { return nil }
		once(t.Context(), "holds the transaction", func(*modelTx) error { <-release; return nil }, nil)
		for _, event := range []string{"first of the lane", "second of the lane"} {
			once(turn.With(ctx, lane.Join()), event, succeeds, context.Canceled)
		}
		once(turn.With(t.Context(), other.Join()), "fails", func(*modelTx) error {
			cancel()
			synctest.Wait()
			return errFunction
		}, errFunction)
		close(release)
		calls.Wait()
		cancel()
		if m.open != 0 {
			t.Errorf("%d transactions are open", m.open)
		}
	})
}
