package gather

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
