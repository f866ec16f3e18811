package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

// record notes what arrives.
type record struct {
	calls []string
	then  http.Handler
}

func (s *record) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.calls = append(s.calls, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Idempotency-Key"), " ",
		string(body)))
	s.then.ServeHTTP(w, r)
}

func (s *record) want(t *testing.T, calls ...string) {
	t.Helper()
	if got, want := strings.Join(s.calls, "\n"), strings.Join(calls, "\n"); got != want {
		t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
}

// paid answers all requests as if they were payments.
func paid() *record {
	return &record{then: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "paid")
	})}
}

func redirecting(code int, to string) *record {
	return &record{then: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(code)
	})}
}

// net/http would make a GET of the call, without key and body, and hand over the answer to that one.
func TestARedirectIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, code := range []int{301, 302, 303} {
			target := paid()
			source := redirecting(code, serve(t, target)+"/moved?token=secret")
			req := post(t.Context(), serve(t, source)+"/charges", "key-1", "body")
			req.Method = method
			retried := 0
			cfg := quick()
			cfg.OnRetry = func(context.Context, idempotency.Retry) { retried++ }
			res, err := clientOf(t, cfg).Do(req)
			if err == nil {
				_ = res.Body.Close()
				t.Errorf("%s, %d: answer %d, want an error", method, code, res.StatusCode)
			}
			redirect, ok := errors.AsType[*idempotency.Redirected](err)
			if !ok || redirect.Status != code || redirect.Location == nil || redirect.Location.Path != "/moved" {
				t.Errorf("%s, %d: %v, want an error with the redirect", method, code, err)
			} else if text := err.Error(); !strings.Contains(text, fmt.Sprint(code)) || !strings.Contains(text, "/moved") ||
				strings.Contains(text, "secret") || errors.Is(err, idempotency.ErrNotSent) {
				t.Errorf("%s, %d: %v, want the redirect named without its query", method, code, err)
			}
			source.want(t, method+` /charges "key-1" body`)
			target.want(t)
			if retried != 0 {
				t.Errorf("%s, %d: repeated %d times", method, code, retried)
			}
		}
	}
}

// A redirect that keeps method and body is followed at the service that was called, with the call's key, and nowhere
// else.
func TestRedirectsThatKeepTheCall(t *testing.T) {
	t.Parallel()
	for _, code := range []int{307, 308} {
		for name, wished := range map[string]bool{"not wished": false, "wished": true} {
			target := paid()
			to := serve(t, target)
			source := redirecting(code, to+"/moved")
			cfg := quick()
			if wished {
				cfg.RedirectHosts = []string{strings.TrimPrefix(to, "http://")}
			}
			res, err := clientOf(t, cfg).Do(post(t.Context(), serve(t, source)+"/charges", "key-1", "body"))
			if err == nil {
				_ = res.Body.Close()
			}
			source.want(t, `POST /charges "key-1" body`)
			if wished {
				target.want(t, `POST /moved "key-1" body`)
				if err != nil {
					t.Errorf("%d, %s: %v", code, name, err)
				}
				continue
			}
			target.want(t)
			if redirect, ok := errors.AsType[*idempotency.Redirected](err); !ok || redirect.Status != code ||
				!strings.Contains(err.Error(), "RedirectHosts") {
				t.Errorf("%d, %s: %v, want an error with the redirect", code, name, err)
			}
		}
		mux := http.NewServeMux()
		mux.Handle("/old", redirecting(code, "/new"))
		mux.Handle("/new", paid())
		all := &record{then: mux}
		if status, body := do(t, clientOf(t, quick()), post(t.Context(), serve(t, all)+"/old", "key-1",
			"body")); status != 200 || body != "paid" {
			t.Errorf("%d: answer %d %q", code, status, body)
		}
		all.want(t, `POST /old "key-1" body`, `POST /new "key-1" body`)
	}
}

// What comes behind a redirect is repeated with the key, too.
func TestACallIsRepeatedBehindARedirect(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{503, 201}}
	mux := http.NewServeMux()
	mux.Handle("/old", redirecting(http.StatusTemporaryRedirect, "/new"))
	mux.Handle("/new", h)
	all := &record{then: mux}
	if status, _ := do(t, clientOf(t, quick()), post(t.Context(), serve(t, all)+"/old", "key-1",
		"body")); status != http.StatusCreated {
		t.Errorf("answer %d", status)
	}
	all.want(t, `POST /old "key-1" body`, `POST /new "key-1" body`, `POST /new "key-1" body`)
}

// The key and the body never leave TLS, whatever the host is.
func TestRedirectsOutOfTLS(t *testing.T) {
	t.Parallel()
	for location, followed := range map[string]bool{
		"https://provider/new": true, "/new": true, "https://provider:443/new": true, "//PROVIDER/new": true,
		"http://provider/new": false, "https://provider:8443/new": false, "https://provider.evil/new": false,
		"//evil/new": false, "ftp://provider/new": false,
		"https://wished/new": true, "http://wished/new": false, "https://wished:1/new": false,
	} {
		base := &answering{}
		base.answer = func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return base.response(307, "Location", location), nil
			}
			return base.response(201), nil
		}
		client := &http.Client{Transport: idempotency.NewTransport(base,
			&idempotency.TransportConfig{RedirectHosts: []string{"wished"}})}
		res, err := client.Do(post(t.Context(), "https://provider/old", "key-1", "body"))
		if err == nil {
			_ = res.Body.Close()
		}
		if followed != (err == nil) || followed != (len(base.calls) == 2) || !base.bodies[0].closed() {
			t.Errorf("%s: %v after %d calls, the body is closed: %v; want it followed: %v", location, err, len(base.calls),
				base.bodies[0].closed(), followed)
		}
	}
}

// What is not a redirect to net/http is an answer: nobody follows it.
func TestAnswersThatAreNoRedirects(t *testing.T) {
	t.Parallel()
	for _, code := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		location := ""
		if code == 300 || code == 304 || code == 305 {
			location = "/elsewhere"
		}
		base := &answering{}
		base.answer = func(int, *http.Request) (*http.Response, error) {
			if location == "" {
				return base.response(code), nil
			}
			return base.response(code, "Location", location), nil
		}
		status, _ := do(t, &http.Client{Transport: idempotency.NewTransport(base, quick())},
			post(t.Context(), "https://provider/old", "key-1", "body"))
		if status != code || len(base.calls) != 1 {
			t.Errorf("%d: answer %d after %d calls", code, status, len(base.calls))
		}
	}
}

// Methods that are safe, and calls without a key, are as net/http makes them.
func TestRedirectsOfOthers(t *testing.T) {
	t.Parallel()
	for method, key := range map[string]string{"GET": "key-1", "HEAD": "key-1", "POST": ""} {
		target := paid()
		source := redirecting(302, serve(t, target)+"/new")
		req := post(t.Context(), serve(t, source)+"/old", key, "")
		req.Method = method
		if status, _ := do(t, clientOf(t, quick()), req); status != 200 || len(target.calls) != 1 {
			t.Errorf("%s: answer %d, %d calls at the target", method, status, len(target.calls))
		}
	}
}

// The budget is that of the call, with its redirects.
func TestTheBudgetOfRedirects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &answering{}
		base.answer = func(int, *http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return base.response(307, "Location", "/again"), nil
		}
		began := time.Now()
		client := &http.Client{Transport: idempotency.NewTransport(base,
			&idempotency.TransportConfig{Attempts: 100, Budget: 10 * time.Second})}
		res, err := client.Do(post(t.Context(), "https://provider/old", "key-1", "body"))
		if err == nil {
			_ = res.Body.Close()
		}
		if took := time.Since(began); err == nil || took > 12*time.Second || len(base.calls) != 3 {
			t.Errorf("%v after %v and %d calls, want an error within the budget of 10 s", err, took, len(base.calls))
		}
	})
}
