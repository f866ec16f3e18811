package pgxstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A context of a limit behaves as one of context.WithTimeout, in its errors, its deadline and what is derived from it.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &limit{length: time.Second}
		outlived := l.start(t.Context())
		l.stop(outlived)
		if !errors.Is(outlived.Err(), context.Canceled) {
			t.Errorf("stopped: %v", outlived.Err())
		}
		first := l.start(t.Context())
		time.Sleep(500 * time.Millisecond)
		second, third := l.start(t.Context()), l.start(t.Context())
		l.stop(second)
		derived, cancel := context.WithCancel(third)
		defer cancel()
		for _, c := range []struct {
			ctx  context.Context
			ends time.Duration
		}{{first, 500 * time.Millisecond}, {third, time.Second}, {derived, time.Second}} {
			began := time.Now()
			if at, ok := c.ctx.Deadline(); !ok || at.After(began.Add(time.Second)) {
				t.Errorf("deadline %v, %v", at, ok)
			}
			<-c.ctx.Done()
			if !errors.Is(c.ctx.Err(), context.DeadlineExceeded) && c.ctx != derived ||
				!errors.Is(context.Cause(c.ctx), context.DeadlineExceeded) {
				t.Errorf("ended with %v, %v", c.ctx.Err(), context.Cause(c.ctx))
			}
		}
		if l.oldest != nil || l.last != nil {
			t.Error("something is left on the list")
		}
		l.stop(first) // it has ended
		l.stop(third)
		time.Sleep(time.Hour)
		if l.ticking {
			t.Error("a timer runs for nothing")
		}
		parent, end := context.WithCancelCause(t.Context())
		child := l.start(parent)
		why := errors.New("why")
		end(why)
		if !errors.Is(child.Err(), context.Canceled) || !errors.Is(context.Cause(child), why) {
			t.Errorf("the parent ended: %v, %v", child.Err(), context.Cause(child))
		}
		l.stop(child)
		time.Sleep(time.Hour)
	})
}

// The deadline is that of the parent, where that ends first.
func TestLimitOfAParentWithADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &limit{length: time.Second}
		for patience, want := range map[time.Duration]time.Duration{time.Millisecond: time.Millisecond,
			time.Minute: time.Second} {
			parent, cancel := context.WithTimeout(t.Context(), patience)
			c := l.start(parent)
			began := time.Now()
			if at, ok := c.Deadline(); !ok || at.Sub(began) != want {
				t.Errorf("a parent that ends after %v: deadline in %v, %v, want %v", patience, at.Sub(began), ok, want)
			}
			<-c.Done()
			if took := time.Since(began); took != want || !errors.Is(c.Err(), context.DeadlineExceeded) {
				t.Errorf("a parent that ends after %v: ended after %v with %v", patience, took, c.Err())
			}
			l.stop(c)
			cancel()
			time.Sleep(time.Hour)
		}
	})
}

// Each ends when its own time has passed.
func TestLimitEndsEachInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &limit{length: time.Second}
		for range 100 {
			c := l.start(t.Context())
			began := time.Now()
			go func() {
				<-c.Done()
				if d := time.Since(began); d != time.Second {
					t.Errorf("ended after %v", d)
				}
				l.stop(c)
			}()
			time.Sleep(13 * time.Millisecond)
		}
		time.Sleep(time.Hour)
	})
}
