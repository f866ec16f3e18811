package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

// working is a handler that ignores its context for d, then returns err.
func working(d time.Duration, err error) consumer.Handler {
	return consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		time.Sleep(d)
		return err
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		h         consumer.Handler
		took      time.Duration
		timeout   bool
		permanent bool
		wraps     error
	}{
		{name: "in time", h: working(4*time.Second, nil), took: 4 * time.Second},
		{name: "error in time", h: working(4*time.Second, errBase), took: 4 * time.Second, wraps: errBase},
		{
			name: "looks at its context",
			h: consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			took: 5 * time.Second, timeout: true, wraps: context.DeadlineExceeded,
		},
		{
			name: "returns the cause",
			h: consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				return fmt.Errorf("query: %w", context.Cause(ctx))
			}),
			took: 5 * time.Second, timeout: true, wraps: context.DeadlineExceeded,
		},
		{name: "ignores its context", h: working(time.Minute, nil), took: time.Minute, timeout: true,
			wraps: context.DeadlineExceeded},
		{name: "ignores its context, fails", h: working(time.Minute, errBase), took: time.Minute, timeout: true,
			wraps: errBase},
		{name: "permanent after its time", h: working(time.Minute, consumer.Permanent(errBase)), took: time.Minute,
			timeout: true, permanent: true, wraps: errBase},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			err := middleware.Timeout(5*time.Second)(test.h).Handle(t.Context(), message())
			if took := time.Since(start); took != test.took {
				t.Errorf("%s: took %v, want %v", test.name, took, test.took)
			}
			if errors.Is(err, middleware.ErrTimeout) != test.timeout || !errors.Is(err, test.wraps) ||
				consumer.IsPermanent(err) != test.permanent {
				t.Errorf("%s: got %v", test.name, err)
			}
			if test.timeout && !strings.Contains(err.Error(), "more than 5s") {
				t.Errorf("%s: %q does not name the time", test.name, err)
			}
		})
	}
}

// With Dedup inside, a swallowed deadline is rolled back; a commit that ends after the deadline counts.
func TestTimeoutAroundDedup(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name            string
		handler, commit time.Duration
		committed       int
	}{
		{"in time", time.Second, time.Second, 1},
		{"handler ends late and swallows it", 6 * time.Second, 0, 0},
		{"commit ends late", 4 * time.Second, 2 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{committing: func() { time.Sleep(test.commit) }}
			h := middleware.Timeout(5 * time.Second)(middleware.Dedup(s,
				func(_ context.Context, tx *tx, _ *consumer.Message) error {
					time.Sleep(test.handler)
					tx.writes = append(tx.writes, "charged")
					return nil
				}, nil))
			err := h.Handle(t.Context(), message())
			if len(s.charges) != test.committed || (err == nil) != (test.committed == 1) {
				t.Errorf("%s: committed %v, err %v", test.name, s.charges, err)
			}
			if err != nil && (!errors.Is(err, middleware.ErrTimeout) || strings.Count(err.Error(), "more than 5s") != 1) {
				t.Errorf("%s: %v is no ErrTimeout, or says it twice", test.name, err)
			}
		})
	}
}

// What has taken effect in time has not failed, however long links between Timeout and Dedup take afterwards.
func TestTimeoutAfterTheEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		late := func(next consumer.Handler) consumer.Handler {
			return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
				err := next.Handle(ctx, msg)
				time.Sleep(6 * time.Second)
				return err
			})
		}
		h := compose(middleware.Dedup(s, func(context.Context, *tx, *consumer.Message) error { return nil }, nil),
			middleware.Timeout(5*time.Second), late)
		if err := h.Handle(t.Context(), message()); err != nil {
			t.Errorf("committed, and then: %v", err)
		}
		if err := compose(returning(nil), middleware.Timeout(5*time.Second), late).Handle(t.Context(),
			message()); !errors.Is(err, middleware.ErrTimeout) {
			t.Errorf("nothing took effect, and it was late: %v", err)
		}
	})
}

func TestTimeoutOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		outer, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := middleware.Timeout(5*time.Second)(wait).Handle(outer, message()); errors.Is(err, middleware.ErrTimeout) {
			t.Errorf("a drain is taken for a time-out: %v", err)
		}
		start := time.Now()
		err := middleware.Timeout(time.Hour)(middleware.Timeout(time.Second)(wait)).Handle(t.Context(), message())
		if took := time.Since(start); took != time.Second || !strings.Contains(err.Error(), "more than 1s") ||
			strings.Contains(err.Error(), "1h") {
			t.Errorf("two time-outs: took %v, err %v", took, err)
		}
	})
}

func TestTimeoutInsideRetryIsPerAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := compose(working(6*time.Second, nil), middleware.Retry(2, nil), middleware.Timeout(5*time.Second))
		msg := message()
		if err := h.Handle(t.Context(), msg); kind(err) != "retry" || !errors.Is(err, middleware.ErrTimeout) {
			t.Errorf("first attempt: %v", err)
		}
		msg.Attempt = 2
		if err := h.Handle(t.Context(), msg); kind(err) != "gave up" || !errors.Is(err, middleware.ErrTimeout) {
			t.Errorf("second attempt: %v", err)
		}
	})
}

func TestTimeoutCheck(t *testing.T) {
	t.Parallel()
	for d, good := range map[time.Duration]bool{time.Nanosecond: true, 0: false, -time.Second: false} {
		called := false
		h := middleware.Timeout(d)(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			called = true
			return nil
		}))
		if err := check(t, h); (err == nil) != good {
			t.Errorf("%v: Check says %v", d, err)
		}
		if err := h.Handle(t.Context(), message()); !good && (err == nil || called || consumer.IsPermanent(err)) {
			t.Errorf("%v: Handle says %v, called %v", d, err, called)
		}
	}
}
