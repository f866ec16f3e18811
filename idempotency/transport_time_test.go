package idempotency_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

// answering is a base without a network, for tests in which time is synctest's.
type answering struct {
	calls  []time.Time
	answer func(n int, req *http.Request) (*http.Response, error)
	bodies []*closer
}

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	a.calls = append(a.calls, time.Now())
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return a.answer(len(a.calls), req)
}

// response has a body that notes when it is closed.
func (a *answering) response(code int, header ...string) *http.Response {
	body := &closer{Reader: strings.NewReader("answer")}
	a.bodies = append(a.bodies, body)
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: body, ContentLength: 6}
}

// hang is a server that never answers.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]func() string{
		"seconds": func() string { return "7" },
		"date":    func() string { return time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &answering{}
			base.answer = func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return base.response(429, "Retry-After", value()), nil
				}
				return base.response(201), nil
			}
			cfg := &idempotency.TransportConfig{MinBackoff: time.Second, MaxBackoff: time.Second}
			status, _ := do(t, &http.Client{Transport: idempotency.NewTransport(base, cfg)},
				post(t.Context(), "http://provider", "key-1", ""))
			if status != 201 || len(base.calls) != 2 {
				t.Fatalf("%s: answer %d after %d calls, want 201 after 2", name, status, len(base.calls))
			}
			// the jitter, below a second, comes on top
			if waited := base.calls[1].Sub(base.calls[0]); waited < 7*time.Second || waited > 8*time.Second {
				t.Errorf("%s: waited %v, want 7 s and the jitter", name, waited)
			}
		})
	}
}

func TestRetryAfterValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		for value, want := range map[string]time.Duration{
			"": -1, "soon": -1, "-1": -1, "1.5": -1, "99999999999999999999": -1,
			"0": 0, "120": 2 * time.Minute, "2147483647": 2147483647 * time.Second,
			now.Add(time.Minute).Format(http.TimeFormat):                       time.Minute,
			now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05") + " GMT": time.Minute, // RFC 850
			now.Add(time.Minute).Format(time.ANSIC):                            time.Minute,
			now.Add(-time.Hour).Format(http.TimeFormat):                        0,
		} {
			got, ok := idempotency.RetryAfter(&http.Response{Header: http.Header{"Retry-After": {value}}})
			if ok != (want >= 0) || ok && got != want {
				t.Errorf("RetryAfter(%q) = %v, %v, want %v", value, got, ok, want)
			}
		}
	})
}

// Where the wait does not fit, the answer that asks for it is the call's.
func TestAWaitThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		budget, deadline, clientTimeout time.Duration
		date                            string
	}{
		"budget":         {budget: 10 * time.Second},
		"far away":       {budget: time.Hour, date: "Fri, 31 Dec 9999 23:59:59 GMT"},
		"deadline":       {budget: 24 * time.Hour, deadline: 10 * time.Second},
		"client timeout": {budget: 24 * time.Hour, clientTimeout: 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &answering{}
			base.answer = func(int, *http.Request) (*http.Response, error) {
				return base.response(503, "Retry-After", cmp.Or(tc.date, "3600")), nil
			}
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			client := &http.Client{
				Timeout:   tc.clientTimeout,
				Transport: idempotency.NewTransport(base, &idempotency.TransportConfig{Budget: tc.budget}),
			}
			began := time.Now()
			status, body := do(t, client, post(ctx, "http://provider", "key-1", ""))
			if status != 503 || body != "answer" || len(base.calls) != 1 || time.Since(began) != 0 {
				t.Errorf("%s: answer %d %q after %d calls and %v, want the first at once", name, status, body, len(base.calls),
					time.Since(began))
			}
		})
	}
}

func TestTheBudgetEndsACallThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{answer: func(_ int, req *http.Request) (*http.Response, error) { return hang(req) }}
		cfg := &idempotency.TransportConfig{Attempts: 100, Budget: 30 * time.Second, AttemptTimeout: 10 * time.Second}
		began := time.Now()
		_, err := (&http.Client{Transport: idempotency.NewTransport(base, cfg)}).Do(post(t.Context(), "http://provider", "key-1", "")) //nolint:bodyclose // there is none
		if took := time.Since(began); took > 30*time.Second || took < 20*time.Second {
			t.Errorf("the call took %v, want nearly its budget of 30 s", took)
		}
		if n := len(base.calls); n < 3 || n > 5 {
			t.Errorf("%d attempts, want about three of 10 s", n)
		}
		if timeout, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err); !ok || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is no time-out", err)
		}
	})
}

// Some transports say that their context was cancelled, where the attempt's time was over: the caller's was not.
func TestATimeoutIsNoCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{answer: func(_ int, req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}}
		cfg := &idempotency.TransportConfig{Attempts: 2}
		_, err := (&http.Client{Transport: idempotency.NewTransport(base, cfg)}).Do(post(t.Context(), "http://provider", "key-1", "")) //nolint:bodyclose // there is none
		if errors.Is(err, context.Canceled) || !errors.Is(err, context.DeadlineExceeded) || len(base.calls) != 2 {
			t.Errorf("%v after %d calls, want a time-out after 2", err, len(base.calls))
		}
	})
}

// A hanging attempt costs another one, not the call.
func TestAnAttemptThatHangsIsRepeated(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	release := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1: // no answer
			_, _ = io.Copy(io.Discard, r.Body)
			<-release
		case 2: // no end of the answer
			_, _ = io.WriteString(w, "half an ")
			_ = http.NewResponseController(w).Flush()
			<-release
		default:
			_, _ = io.WriteString(w, "answer")
		}
	}))
	t.Cleanup(func() { close(release) }) // before the server is closed
	cfg := quick()
	cfg.AttemptTimeout = 300 * time.Millisecond
	cfg.Attempts = 50 // a loaded machine may need more than three
	if status, body := do(t, clientOf(t, cfg), post(t.Context(), url, "key-1", "body")); status != 200 ||
		body != "answer" {
		t.Errorf("answer %d %q", status, body)
	}
}

func TestTheContextEndsACall(t *testing.T) {
	t.Parallel()
	cause := errors.New("the drain is over")
	for name, during := range map[string]bool{"during an attempt": true, "between attempts": false} {
		synctest.Test(t, func(t *testing.T) {
			base := &answering{}
			base.answer = func(_ int, req *http.Request) (*http.Response, error) {
				if during {
					return hang(req)
				}
				return base.response(503, "Retry-After", "20"), nil
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(cause) })
			began := time.Now()
			retries := 0
			cfg := &idempotency.TransportConfig{OnRetry: func(context.Context, idempotency.Retry) { retries++ }}
			_, err := (&http.Client{Transport: idempotency.NewTransport(base, cfg)}).Do(post(ctx, "http://provider", "key-1", "")) //nolint:bodyclose // there is none
			if during && retries > 0 {
				t.Errorf("%s: another attempt was to follow", name)
			}
			if !errors.Is(err, cause) || len(base.calls) != 1 || time.Since(began) != 5*time.Second {
				t.Errorf("%s: %v after %d calls and %v, want the context's cause after 5 s", name, err, len(base.calls),
					time.Since(began))
			}
		})
	}
}

func TestThePauseGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{}
		base.answer = func(int, *http.Request) (*http.Response, error) { return base.response(503), nil }
		var waits []time.Duration
		cfg := &idempotency.TransportConfig{
			Attempts: 2000, Budget: 24 * time.Hour, MinBackoff: time.Second, MaxBackoff: 8 * time.Second,
			OnRetry: func(_ context.Context, r idempotency.Retry) {
				if r.Attempt != len(waits)+1 || r.Status != 503 || r.Err != nil {
					t.Errorf("OnRetry is told %+v after %d attempts", r, len(waits)+1)
				}
				waits = append(waits, r.Wait)
			},
		}
		do(t, &http.Client{Transport: idempotency.NewTransport(base, cfg)}, post(t.Context(), "http://provider", "key-1", ""))
		for i, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
			8 * time.Second} {
			if waits[i] > limit {
				t.Errorf("pause %d is %v, want at most %v", i+1, waits[i], limit)
			}
		}
		var low, high int
		for i, wait := range waits {
			if got := base.calls[i+1].Sub(base.calls[i]); got != wait {
				t.Fatalf("pause %d is %v, but OnRetry was told %v", i+1, got, wait)
			}
			switch {
			case wait > 8*time.Second:
				t.Fatalf("pause %d is %v, want at most MaxBackoff", i+1, wait)
			case wait < 2*time.Second:
				low++
			case wait > 6*time.Second:
				high++
			}
		}
		// evenly from 0 to 8 s: a quarter each, about 500 of 2,000
		if low < 300 || high < 300 {
			t.Errorf("%d pauses below 2 s and %d above 6 s of %d: that is no full jitter", low, high, len(waits))
		}
	})
}

// Every answer but the returned one is read to its end and closed.
func TestAnswersThatAreNotReturnedAreClosed(t *testing.T) {
	t.Parallel()
	for _, maxAnswer := range []int64{0, 3, -1} {
		synctest.Test(t, func(t *testing.T) {
			base := &answering{}
			base.answer = func(n int, _ *http.Request) (*http.Response, error) {
				return base.response([]int{503, 409, 201}[n-1]), nil
			}
			client := &http.Client{Transport: idempotency.NewTransport(base, &idempotency.TransportConfig{MaxAnswer: maxAnswer})}
			res, err := client.Do(post(t.Context(), "http://provider", "key-1", ""))
			if err != nil {
				t.Fatal(err)
			}
			for i, body := range base.bodies[:2] {
				if left, _ := io.Copy(io.Discard, body); left != 0 || !body.closed() {
					t.Errorf("MaxAnswer %d: answer %d: %d bytes are left, closed %v", maxAnswer, i+1, left, body.closed())
				}
			}
			if data, err := io.ReadAll(res.Body); string(data) != "answer" || err != nil {
				t.Errorf("MaxAnswer %d: body %q, %v", maxAnswer, data, err)
			}
			_ = res.Body.Close()
			if !base.bodies[2].closed() {
				t.Errorf("MaxAnswer %d: the last answer is not closed", maxAnswer)
			}
		})
	}
}

// What is longer than MaxAnswer arrives as a stream, whole, and is not bounded by AttemptTimeout.
func TestAnswersOverTheLimit(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("0123456789"), 50_000)
	for _, maxAnswer := range []int64{-1, 1, 499_999, 500_000, 500_001} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) })
		cfg := quick()
		cfg.MaxAnswer = maxAnswer
		_, body := do(t, clientOf(t, cfg), post(t.Context(), serve(t, h), "key-1", "body"))
		if body != string(long) {
			t.Errorf("MaxAnswer %d: %d bytes arrived, want %d", maxAnswer, len(body), len(long))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		base := &answering{answer: func(int, *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: r, ContentLength: -1}, nil
		}}
		cfg := &idempotency.TransportConfig{MaxAnswer: -1}
		res, err := (&http.Client{Transport: idempotency.NewTransport(base, cfg)}).Do(post(t.Context(), "http://provider",
			"key-1", ""))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "late")
			_ = w.Close()
		}()
		if data, err := io.ReadAll(res.Body); string(data) != "late" || err != nil {
			t.Errorf("body %q, %v", data, err)
		}
		_ = res.Body.Close()
	})
}

func TestAnUntrustedCertificateIsNotRepeated(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{200}}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := quick()
	cfg.OnRetry = func(_ context.Context, r idempotency.Retry) { t.Errorf("repeated after %v", r.Err) }
	if _, err := clientOf(t, cfg).Do(post(t.Context(), server.URL, "key-1", "")); err == nil { //nolint:bodyclose // there is none
		t.Error("no error")
	}
	client := &http.Client{Transport: idempotency.NewTransport(server.Client().Transport, quick())}
	if status, _ := do(t, client, post(t.Context(), server.URL, "key-1", "")); status != 200 {
		t.Errorf("answer %d by a client that trusts the certificate", status)
	}
}

// Timeout of the client bounds the call with all its attempts.
func TestTheClientsTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release) })
	client := clientOf(t, quick())
	client.Timeout = 200 * time.Millisecond
	_, err := client.Do(post(t.Context(), url, "key-1", "body")) //nolint:bodyclose // there is none
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the client's time-out", err)
	}
}
