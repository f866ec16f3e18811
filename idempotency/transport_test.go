package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
)

// quick makes attempts follow each other at once. Its time-outs are longer than a loaded machine needs.
func quick() *idempotency.TransportConfig {
	return &idempotency.TransportConfig{
		MinBackoff: time.Microsecond, MaxBackoff: time.Microsecond, Budget: 2 * time.Minute, AttemptTimeout: time.Minute,
	}
}

// fresh returns a transport that keeps no connection, so that net/http repeats nothing by itself.
func fresh(t *testing.T) *http.Transport {
	t.Helper()
	base := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func clientOf(t *testing.T, cfg *idempotency.TransportConfig) *http.Client {
	t.Helper()
	return &http.Client{Transport: idempotency.NewTransport(fresh(t), cfg)}
}

func post(ctx context.Context, url, key, body string) *http.Request {
	if key != "" {
		ctx = idempotency.WithKey(ctx, key)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

// do returns the status and the body of the answer.
func do(t *testing.T, client *http.Client, req *http.Request) (int, string) {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Whatever goes wrong before, during and after the effect, it happens once, and the caller gets the answer of it.
func TestEveryFaultComesToOneEffect(t *testing.T) {
	t.Parallel()
	for _, fault := range idempotencytest.Faults() {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{Script: []idempotencytest.Fault{fault}})
			status, answer := do(t, clientOf(t, quick()), post(t.Context(), serve(t, provider), "key-1", `{"cents":4200}`))
			if status != http.StatusCreated || answer != `{"id":"1"}` {
				t.Errorf("answer %d %s, want 201 with the id of the first effect", status, answer)
			}
			if got := provider.Effects(); !maps.Equal(got, map[string]int{"key-1": 1}) {
				t.Errorf("effects %v, want one of key-1", got)
			}
			calls := provider.Calls()
			if len(calls) < 2 {
				t.Fatalf("%d calls: the fault was not repeated", len(calls))
			}
			for _, call := range calls {
				if !slices.Equal(call.Field, []string{`"key-1"`}) || string(call.Body) != `{"cents":4200}` {
					t.Errorf("call %d was made with the key %q and the body %q", call.Number, call.Field, call.Body)
				}
			}
		})
	}
}

// With kept connections, net/http repeats too.
func TestRandomFaultsComeToOneEffectPerKey(t *testing.T) {
	t.Parallel()
	provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{Faults: idempotencytest.RandomFaults(7, 0.6)})
	url := serve(t, provider)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	cfg := quick()
	cfg.Attempts = 100
	client := &http.Client{Transport: idempotency.NewTransport(base, cfg)}
	want := map[string]int{}
	errs := make(chan error)
	for i := range 40 {
		key := fmt.Sprintf("key-%d", i)
		want[key] = 1
		go func() {
			res, err := client.Do(post(t.Context(), url, key, key))
			if err == nil {
				_ = res.Body.Close()
				if res.StatusCode != http.StatusCreated {
					err = fmt.Errorf("%s: answer %d", key, res.StatusCode)
				}
			}
			errs <- err
		}()
	}
	for range want {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := provider.Effects(); !maps.Equal(got, want) {
		t.Errorf("effects %v, want one of each key", got)
	}
}

// statuses answers with one status after the other, the last one for ever, and counts.
type statuses struct {
	codes []int
	seen  []*http.Request
	head  http.Header
}

func (s *statuses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code := s.codes[min(len(s.seen), len(s.codes)-1)]
	s.seen = append(s.seen, r)
	maps.Copy(w.Header(), s.head)
	w.WriteHeader(code)
	if code != http.StatusNoContent && code != http.StatusNotModified {
		_, _ = fmt.Fprintf(w, "answer %d", len(s.seen))
	}
}

func TestWhichAnswersAreRepeated(t *testing.T) {
	t.Parallel()
	again := []int{408, 409, 425, 429, 500, 502, 503, 504, 507, 599}
	for _, code := range append(again, 200, 201, 202, 204, 304, 400, 401, 402, 403, 404, 405, 410, 412, 413, 415, 422, 423,
		451, 501, 505) {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			h := &statuses{codes: []int{code, 201}}
			status, _ := do(t, clientOf(t, quick()), post(t.Context(), serve(t, h), "key-1", "body"))
			wantStatus, wantCalls := code, 1
			if slices.Contains(again, code) {
				wantStatus, wantCalls = 201, 2
			}
			if status != wantStatus || len(h.seen) != wantCalls {
				t.Errorf("answer %d after %d calls, want %d after %d", status, len(h.seen), wantStatus, wantCalls)
			}
		})
	}
}

// Servers that keep a 409 or a 500 for the key answer it for ever.
func TestAReplayedAnswerIsDefinite(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusConflict, http.StatusInternalServerError} {
		provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{
			Effect: func(*http.Request, []byte) (int, []byte) { return code, []byte("no") },
		})
		status, body := do(t, clientOf(t, quick()), post(t.Context(), serve(t, provider), "key-1", "body"))
		if calls := len(provider.Calls()); status != code || body != "no" || calls != 2 {
			t.Errorf("answer %d %s after %d calls, want the replay of %d, which is the second", status, body, calls, code)
		}
	}
}

func TestWithoutAKeyNothingIsRepeated(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PATCH", "PUT", "DELETE", "GET"} {
		h := &statuses{codes: []int{503, 201}}
		req, _ := http.NewRequestWithContext(t.Context(), method, serve(t, h), strings.NewReader("body"))
		status, body := do(t, clientOf(t, quick()), req)
		if status != http.StatusServiceUnavailable || body != "answer 1" || len(h.seen) != 1 {
			t.Errorf("%s: answer %d %q after %d calls, want the 503 of the first", method, status, body, len(h.seen))
		}
		if got := h.seen[0].Header.Values("Idempotency-Key"); len(got) != 0 {
			t.Errorf("%s: the key %q comes from nowhere", method, got)
		}
	}
}

func TestRequireKey(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.RequireKey = true
	for method, refused := range map[string]bool{"POST": true, "PATCH": true, "PUT": true, "DELETE": true, "GET": false,
		"HEAD": false} {
		h := &statuses{codes: []int{200}}
		body := &closer{Reader: strings.NewReader("body")}
		req, _ := http.NewRequestWithContext(t.Context(), method, serve(t, h), body)
		res, err := clientOf(t, cfg).Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if refused != errors.Is(err, idempotency.ErrNoKey) || refused != (len(h.seen) == 0) || refused && !body.closed() {
			t.Errorf("%s: %v, %d calls, body closed %v", method, err, len(h.seen), body.closed())
		}
	}
}

// The key goes with every method that may have an effect; a context with a key may be used for a GET beside it.
func TestTheKeyIsSentWithMethodsThatHaveEffects(t *testing.T) {
	t.Parallel()
	for method, sent := range map[string]bool{"POST": true, "PATCH": true, "PUT": true, "DELETE": true, "GET": false,
		"HEAD": false, "OPTIONS": false} {
		h := &statuses{codes: []int{503, 200}}
		req, _ := http.NewRequestWithContext(idempotency.WithKey(t.Context(), "key-1"), method, serve(t, h), nil)
		if status, _ := do(t, clientOf(t, quick()), req); status != 200 || len(h.seen) != 2 {
			t.Fatalf("%s: answer %d after %d calls, want 200 after 2", method, status, len(h.seen))
		}
		if got := h.seen[1].Header.Get("Idempotency-Key") != ""; got != sent {
			t.Errorf("%s: a key is sent: %v, want %v", method, got, sent)
		}
	}
}

func TestTheLastAnswerIsReturnedWhole(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{503}, head: http.Header{"X-Reason": {"why"}}}
	cfg := quick()
	cfg.Attempts = 3
	res, err := clientOf(t, cfg).Do(post(t.Context(), serve(t, h), "key-1", "body"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || string(body) != "answer 3" ||
		res.Header.Get("X-Reason") != "why" || len(h.seen) != 3 {
		t.Errorf("answer %d %q, %v after %d calls, want the third", res.StatusCode, body, err, len(h.seen))
	}
}

func TestGaveUpWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	cfg := quick()
	cfg.Attempts = 4
	_, err := clientOf(t, cfg).Do(post(t.Context(), server.URL, "secret-key", "body")) //nolint:bodyclose // there is none
	gaveUp, ok := errors.AsType[*idempotency.GaveUp](err)
	if !ok || gaveUp.Attempts != 4 || gaveUp.Err == nil {
		t.Fatalf("%v, want GaveUp after 4 attempts", err)
	}
	if !errors.Is(err, idempotency.ErrNotSent) || strings.Contains(err.Error(), "taken effect") {
		t.Errorf("%v, want an error that says that nothing was sent", err)
	}
	if strings.Contains(err.Error(), "secret-key") {
		t.Errorf("the error tells the key: %v", err)
	}
}

func TestTheFieldsForm(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	for name, tc := range map[string]struct {
		key, field string
		bare       bool
	}{
		"quoted":          {`8e03978e`, `"8e03978e"`, false},
		"bare":            {`8e03978e`, `8e03978e`, true},
		"quotes, escaped": {`a"b\c`, `"a\"b\\c"`, false},
		"space":           {`a b`, `"a b"`, false},
		"longest":         {long, `"` + long + `"`, false},
		"longest, bare":   {long, long, true},
	} {
		h := &statuses{codes: []int{200}}
		cfg := quick()
		cfg.Bare = tc.bare
		do(t, clientOf(t, cfg), post(t.Context(), serve(t, h), tc.key, ""))
		if got := h.seen[0].Header.Values("Idempotency-Key"); !slices.Equal(got, []string{tc.field}) {
			t.Errorf("%s: the field is %q, want %q", name, got, tc.field)
		}
	}
}

func TestKeysThatAreNotSent(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{200}}
	url := serve(t, h)
	withField := func(values ...string) *http.Request {
		req := post(t.Context(), url, "", "body")
		req.Header["Idempotency-Key"] = values
		return req
	}
	empty := post(idempotency.WithKey(t.Context(), ""), url, "", "body")
	for name, tc := range map[string]struct {
		req  *http.Request
		bare bool
		says string
	}{
		"0 bytes":          {empty, false, "is empty"},
		"256 bytes":        {post(t.Context(), url, strings.Repeat("k", 256), ""), false, "256 bytes"},
		"10,000 bytes":     {post(t.Context(), url, strings.Repeat("k", 10_000), ""), false, "10000 bytes"},
		"non-ASCII":        {post(t.Context(), url, "schlüssel", ""), false, "byte 4"},
		"line feed":        {post(t.Context(), url, "a\r\nX-Evil: 1", ""), false, "byte 1"},
		"space, bare":      {post(t.Context(), url, "a b", ""), true, "without quotes"},
		"quote, bare":      {post(t.Context(), url, `"a"`, ""), true, "without quotes"},
		"two fields":       {withField("a", "b"), false, "2 idempotency keys"},
		"empty field":      {withField(""), false, "is empty"},
		"field, too long":  {withField(strings.Repeat("k", 10_000)), false, "10000 bytes"},
		"field, two of it": {withField("a", "a"), false, "2 idempotency keys"},
	} {
		cfg := quick()
		cfg.Bare = tc.bare
		res, err := clientOf(t, cfg).Do(tc.req)
		if err == nil {
			_ = res.Body.Close()
			t.Errorf("%s: sent", name)
			continue
		}
		if !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "kkk") {
			t.Errorf("%s: %v, want an error that says %q and not the key", name, err, tc.says)
		}
	}
	if len(h.seen) != 0 {
		t.Errorf("%d requests were sent", len(h.seen))
	}
}

func TestAFieldOfTheCallersOwnIsSentAsItIs(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{503, 200}}
	req := post(t.Context(), serve(t, h), "from the context", "body")
	req.Header.Set("Idempotency-Key", "their-own")
	do(t, clientOf(t, quick()), req)
	for _, seen := range h.seen {
		if got := seen.Header.Values("Idempotency-Key"); !slices.Equal(got, []string{"their-own"}) {
			t.Errorf("the field is %q, want the caller's", got)
		}
	}
	if len(h.seen) != 2 {
		t.Errorf("%d calls, want the 503 to be repeated", len(h.seen))
	}
}

func TestAFieldOfAnotherName(t *testing.T) {
	t.Parallel()
	h := &statuses{codes: []int{200}}
	cfg := quick()
	cfg.Header, cfg.Bare = "paypal-request-id", true
	do(t, clientOf(t, cfg), post(t.Context(), serve(t, h), "key-1", "body"))
	if got := h.seen[0].Header; got.Get("Paypal-Request-Id") != "key-1" || got.Get("Idempotency-Key") != "" {
		t.Errorf("fields %v", got)
	}
}

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	cfg := &idempotency.TransportConfig{Attempts: -1, Budget: -1, MaxBody: -1}
	_, err := clientOf(t, cfg).Do(post(t.Context(), "http://localhost", "key-1", "")) //nolint:bodyclose // there is none
	for _, field := range []string{"Attempts", "Budget", "MaxBody"} {
		if err == nil || !strings.Contains(err.Error(), "TransportConfig."+field+" is negative") {
			t.Errorf("%v, want an error about %s", err, field)
		}
	}
}
