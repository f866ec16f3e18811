package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

func TestRetryDecides(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	permanent := consumer.Permanent(errBase)
	parked := consumer.RetryAfter(time.Hour, errBase)
	gaveUp := error(&consumer.GaveUp{Attempts: 9, Err: errBase})
	wrapped := fmt.Errorf("store: %w", permanent)
	for _, test := range []struct {
		name    string
		ctx     context.Context
		attempt int
		err     error
		want    string // "same" for the error as it is
	}{
		{"success", t.Context(), 1, nil, "same"},
		{"success at last", t.Context(), 3, nil, "same"},
		{"first failure", t.Context(), 1, errBase, "retry"},
		{"last failure but one", t.Context(), 2, errBase, "retry"},
		{"last failure", t.Context(), 3, errBase, "gave up after 3 attempts: no stock"},
		{"after the last", t.Context(), 4, errBase, "gave up after 4 attempts: no stock"},
		{"attempt not counted", t.Context(), 0, errBase, "retry"},
		{"permanent", t.Context(), 1, permanent, "same"},
		{"wrapped permanent", t.Context(), 1, wrapped, "same"},
		{"retry after", t.Context(), 1, parked, "same"},
		{"retry after, at the last attempt", t.Context(), 3, parked, "same"},
		{"gave up already", t.Context(), 1, gaveUp, "same"},
		{"context of the handler only", t.Context(), 1, context.Canceled, "retry"},
		{"drain", done, 1, errBase, "same"},
		{"drain, last attempt", done, 3, context.Canceled, "same"},
	} {
		msg := message()
		msg.Attempt = test.attempt
		err := middleware.Retry(3, nil)(returning(test.err)).Handle(test.ctx, msg)
		_, delayed := consumer.Delay(err)
		switch {
		case test.want == "same" && err != test.err: //nolint:errorlint // as it is
			t.Errorf("%s: got %#v, want %#v", test.name, err, test.err)
		case test.want == "retry" && (!delayed || !errors.Is(err, test.err)):
			t.Errorf("%s: got %#v, want a RetryAfter", test.name, err)
		case strings.HasPrefix(test.want, "gave up") && (!consumer.IsGaveUp(err) || err.Error() != test.want ||
			!errors.Is(err, test.err)):
			t.Errorf("%s: got %#v, want a GaveUp that says %q", test.name, err, test.want)
		}
	}
}

func TestRetrySleepsNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := middleware.Retry(100, &middleware.RetryConfig{Base: time.Hour, Max: time.Hour})(returning(errBase))
		for attempt := range 99 {
			msg := message()
			msg.Attempt = attempt + 1
			if _, ok := consumer.Delay(h.Handle(t.Context(), msg)); !ok {
				t.Errorf("attempt %d: no pause asked for", msg.Attempt)
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

// pause returns the pause that Retry asks for after that attempt.
func pause(t interface{ Errorf(string, ...any) }, cfg *middleware.RetryConfig, attempt int) time.Duration {
	msg := message()
	msg.Attempt = attempt
	d, ok := consumer.Delay(middleware.Retry(math.MaxInt, cfg)(returning(errBase)).Handle(context.Background(), msg))
	if !ok {
		t.Errorf("attempt %d: no RetryAfter", attempt)
	}
	return d
}

// ceiling is the documented formula, in numbers that do not overflow.
func ceiling(base, limit time.Duration, attempt int) time.Duration {
	c := new(big.Int).Lsh(big.NewInt(int64(base)), uint(max(attempt, 1)-1))
	if l := big.NewInt(int64(limit)); c.Cmp(l) > 0 {
		c = l
	}
	return time.Duration(c.Int64())
}

func TestRetryPauseIsBelowItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "max"))
		attempt := rapid.OneOf(rapid.IntRange(-1, 70), rapid.IntRange(-1, 1<<16)).Draw(t, "attempt")
		cfg := &middleware.RetryConfig{Base: base, Max: limit}
		c, longest := ceiling(base, limit, attempt), time.Duration(0)
		for range 64 {
			d := pause(t, cfg, attempt)
			longest = max(longest, d)
			if d < 0 || d >= c {
				t.Fatalf("pause %v, want one in [0, %v)", d, c)
			}
		}
		// By chance, this fails once in 2^64.
		if c > time.Microsecond && longest < c/2 {
			t.Fatalf("the longest of 64 pauses is %v, the ceiling %v", longest, c)
		}
	})
	if d := pause(t, &middleware.RetryConfig{Base: math.MaxInt64}, math.MaxInt-1); d < 0 {
		t.Errorf("pause %v at the end of all numbers", d)
	}
}

func TestRetryJitterIsFull(t *testing.T) {
	t.Parallel()
	var shortest, longest, sum time.Duration
	shortest = math.MaxInt64
	const n = 2000
	for range n {
		d := pause(t, &middleware.RetryConfig{Base: time.Second, Max: time.Second}, 1)
		shortest, longest, sum = min(shortest, d), max(longest, d), sum+d
	}
	if mean := sum / n; shortest > 50*time.Millisecond || longest < 950*time.Millisecond || mean < 440*time.Millisecond ||
		mean > 560*time.Millisecond {
		t.Errorf("%d pauses below 1 s: from %v to %v, mean %v", n, shortest, longest, mean)
	}
}

func TestRetryDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		cfg     *middleware.RetryConfig
		attempt int
		ceiling time.Duration
	}{
		{"nil, first", nil, 1, 100 * time.Millisecond},
		{"nil, fourth", nil, 4, 800 * time.Millisecond},
		{"nil, late", nil, 20, 30 * time.Second},
		{"zero", &middleware.RetryConfig{}, 2, 200 * time.Millisecond},
		{"only Max", &middleware.RetryConfig{Max: 150 * time.Millisecond}, 2, 150 * time.Millisecond},
		{"only Base", &middleware.RetryConfig{Base: time.Minute}, 7, time.Minute},
	} {
		var longest time.Duration
		for range 200 {
			longest = max(longest, pause(t, test.cfg, test.attempt))
		}
		if longest >= test.ceiling || longest < test.ceiling*3/4 {
			t.Errorf("%s: the longest of 200 pauses is %v, want one just below %v", test.name, longest, test.ceiling)
		}
	}
}

func TestRetryCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		attempts int
		cfg      *middleware.RetryConfig
		want     []string
	}{
		{"good", 1, nil, nil},
		{"good, all set", 5, &middleware.RetryConfig{Base: time.Second, Max: time.Second}, nil},
		{"good, Base above the default Max", 5, &middleware.RetryConfig{Base: time.Hour}, nil},
		{"no attempts", 0, nil, []string{"attempts is 0", "at least 1"}},
		{"negative attempts and Base", -1, &middleware.RetryConfig{Base: -time.Second},
			[]string{"attempts is -1", "Base is -1s"}},
		{"negative Max", 1, &middleware.RetryConfig{Max: -time.Second}, []string{"Max -1s"}},
		{"Max below Base", 1, &middleware.RetryConfig{Base: time.Minute, Max: time.Second},
			[]string{"Max is 1s, less than Base, 1m0s"}},
	} {
		h := middleware.Retry(test.attempts, test.cfg)(returning(errBase))
		err := check(t, h)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: Check says %v", test.name, err)
		}
		for _, part := range test.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: Check says %q, not %q", test.name, err, part)
			}
		}
		if err := h.Handle(t.Context(), message()); err == nil { // and does not panic
			t.Errorf("%s: the failure is gone", test.name)
		}
	}
}

func TestRetryConfigIsCopied(t *testing.T) {
	t.Parallel()
	cfg := &middleware.RetryConfig{Base: time.Millisecond, Max: time.Millisecond}
	h := middleware.Retry(9, cfg)(returning(errBase))
	cfg.Base, cfg.Max = time.Hour, time.Hour
	if d, _ := consumer.Delay(h.Handle(t.Context(), message())); d > time.Millisecond {
		t.Errorf("a later change of the config is seen: pause %v", d)
	}
}

// Attempts that failed for what the event is not to blame for do not count, however many they are, also behind other
// errors.
func TestRetryExcuses(t *testing.T) {
	t.Parallel()
	of := func(class dedupstore.Class) error {
		return fmt.Errorf("store: %w", dedupstore.WithClass(class, errBase))
	}
	down, own, asked := of(dedupstore.Unavailable), errBase, consumer.RetryAfter(time.Second, errBase)
	away := consumer.RetryAfter(time.Second, down) // of a decoder without its schema registry
	for name, c := range map[string]struct {
		errs []error
		want string // what Retry(2) answers last
	}{
		"each class": {[]error{of(dedupstore.Transient), of(dedupstore.Unavailable), of(dedupstore.OutcomeUnknown),
			of(dedupstore.Misconfigured)}, "again"},
		"failures count":      {[]error{own, own}, "gave up after 2 attempts: no stock"},
		"unclassified":        {[]error{of(dedupstore.Unclassified), own}, "gave up after 2 attempts: no stock"},
		"permanent, unmarked": {[]error{own, of(dedupstore.Permanent)}, "gave up after 2 attempts: store: no stock"},
		"an outage first":     {[]error{down, down, down, own}, "again"},
		"an outage between":   {[]error{own, down, down, down, own}, "gave up after 2 attempts: no stock"},
		"a request between":   {[]error{down, down, asked, down, own}, "gave up after 2 attempts: no stock"}, // requests count, as ever
		"a registry first":    {[]error{away, away, away, own}, "again"},
		"a registry between":  {[]error{own, away, away, away, own}, "gave up after 2 attempts: no stock"},
		"requests go on":      {[]error{asked, asked, asked, down, asked}, "again"},
	} {
		var last error
		for i, err := range c.errs {
			msg := message()
			msg.Attempt, msg.LastError = i+1, last
			last = middleware.Retry(2, nil)(returning(err)).Handle(t.Context(), msg)
			if !errors.Is(last, errBase) {
				t.Fatalf("%s: attempt %d: %v", name, i+1, last)
			}
		}
		got := last.Error()
		if _, again := consumer.Delay(last); again {
			got = "again"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
