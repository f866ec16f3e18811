package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

// Where the pauses may be longer, they are: of many calls, some wait longer before the third and the fourth attempt
// than before the second is possible.
func TestThePauseGrowsBeyondTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{}
		base.answer = func(int, *http.Request) (*http.Response, error) { return base.response(503), nil }
		longest := map[int]time.Duration{}
		cfg := &idempotency.TransportConfig{
			Attempts: 5, Budget: time.Hour, MinBackoff: time.Second, MaxBackoff: time.Minute,
			OnRetry: func(_ context.Context, r idempotency.Retry) { longest[r.Attempt] = max(longest[r.Attempt], r.Wait) },
		}
		for range 200 {
			do(t, &http.Client{Transport: idempotency.NewTransport(base, cfg)}, post(t.Context(), "http://provider", "key-1",
				""))
		}
		for n, limit := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
			4: 8 * time.Second} {
			if got := longest[n]; got > limit || got < limit*8/10 {
				t.Errorf("of 200 pauses %d the longest is %v, want nearly %v", n, got, limit)
			}
		}
	})
}

// Who closes the body of an answer that is handed over as it arrives ends its request, and the context in which it ran.
func TestClosingTheBodyEndsItsContext(t *testing.T) {
	t.Parallel()
	var ctx context.Context
	base := &answering{}
	base.answer = func(_ int, r *http.Request) (*http.Response, error) {
		ctx = r.Context() //nolint:fatcontext // it is looked at when its request has ended
		return base.response(200), nil
	}
	client := &http.Client{Transport: idempotency.NewTransport(base, &idempotency.TransportConfig{MaxAnswer: -1})}
	res, err := client.Do(post(t.Context(), "http://provider", "key-1", ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err != nil || ctx.Err() != nil {
		t.Errorf("%v, the context has ended before the body is closed: %v", err, ctx.Err())
	}
	_ = res.Body.Close()
	if ctx.Err() == nil {
		t.Error("the context goes on when the body is closed")
	}
}

// A base that breaks the contract of a RoundTripper is an error, and no crash.
func TestABaseThatReturnsNothing(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Attempts = 2
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })                          //nolint:nilnil // that is the mistake
	_, err := idempotency.NewTransport(base, cfg).RoundTrip(post(t.Context(), "http://provider", "key-1", "body")) //nolint:bodyclose // there is none
	if gaveUp, ok := errors.AsType[*idempotency.GaveUp](err); !ok || gaveUp.Attempts != 2 ||
		!strings.Contains(err.Error(), "neither an answer nor an error") {
		t.Errorf("%v", err)
	}
	bodiless := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}, nil
	})
	res, err := idempotency.NewTransport(bodiless, quick()).RoundTrip(post(t.Context(), "http://provider", "key-1",
		"body"))
	if err != nil || res.Body == nil {
		t.Fatalf("an answer without a body: %v", err)
	}
	_ = res.Body.Close()
}

// An answer whose time is over when it is to be handed over is none: its body would break off at once.
func TestAnAnswerThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{}
		base.answer = func(int, *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return base.response(200), nil
		}
		client := &http.Client{Transport: idempotency.NewTransport(base,
			&idempotency.TransportConfig{MaxAnswer: -1, Attempts: 1, AttemptTimeout: time.Second})}
		res, err := client.Do(post(t.Context(), "http://provider", "key-1", ""))
		if err == nil {
			_ = res.Body.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) || !base.bodies[0].closed() {
			t.Errorf("%v, the body is closed: %v; want a time-out", err, base.bodies[0].closed())
		}
	})
}
