package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
)

// closer is a body that net/http knows nothing about: a request with it has no GetBody.
type closer struct {
	io.Reader
	n atomic.Int32
}

func (c *closer) Close() error { c.n.Add(1); return nil }
func (c *closer) closed() bool { return c.n.Load() > 0 }

func failing() *idempotencytest.Provider {
	return idempotencytest.NewProvider(&idempotencytest.ProviderConfig{
		Script: []idempotencytest.Fault{idempotencytest.FailBefore, idempotencytest.DropBefore, idempotencytest.CutAnswer},
	})
}

// A body of any kind is sent with the same bytes each time.
func TestTheBodyIsSentAgain(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789", 100_000)
	for name, set := range map[string]func(req *http.Request){
		"none":                   func(req *http.Request) { req.Body, req.GetBody, req.ContentLength = nil, nil, 0 },
		"GetBody":                func(*http.Request) {},
		"reader, length unknown": func(req *http.Request) { req.GetBody, req.ContentLength = nil, -1 },
		"reader, length known":   func(req *http.Request) { req.GetBody = nil },
		"reader of nothing": func(req *http.Request) {
			req.Body, req.GetBody, req.ContentLength = &closer{Reader: strings.NewReader("")}, nil, -1
		},
		"no body": func(req *http.Request) { req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0 },
	} {
		provider := failing()
		req := post(t.Context(), serve(t, provider), "key-1", large)
		set(req)
		if status, _ := do(t, clientOf(t, quick()), req); status != http.StatusCreated {
			t.Errorf("%s: answer %d", name, status)
		}
		calls := provider.Calls()
		for _, call := range calls {
			if !bytes.Equal(call.Body, calls[0].Body) {
				t.Errorf("%s: call %d has %d bytes, the first one %d", name, call.Number, len(call.Body), len(calls[0].Body))
			}
		}
		if want := map[bool]int{true: 0, false: len(large)}[strings.HasPrefix(name, "no") ||
			strings.HasSuffix(name, "nothing")]; len(calls[0].Body) != want {
			t.Errorf("%s: %d bytes were sent, want %d", name, len(calls[0].Body), want)
		}
		if len(calls) != 4 {
			t.Errorf("%s: %d calls, want 4", name, len(calls))
		}
	}
}

// A body that is kept has a length and can be read again, for net/http too, which repeats what a kept connection has
// lost.
func TestABodyThatIsKept(t *testing.T) {
	t.Parallel()
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.ContentLength != 4 || req.GetBody == nil {
			t.Errorf("the length is %d, GetBody nil %v", req.ContentLength, req.GetBody == nil)
			return nil, errRead
		}
		again, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		for _, r := range []io.ReadCloser{req.Body, again} {
			if data, err := io.ReadAll(r); string(data) != "body" || err != nil {
				t.Errorf("body %q, %v", data, err)
			}
			_ = r.Close()
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})
	body := &closer{Reader: strings.NewReader("body")}
	req := post(t.Context(), "http://provider", "key-1", "")
	req.Body, req.GetBody, req.ContentLength = body, nil, -1
	do(t, &http.Client{Transport: idempotency.NewTransport(base, quick())}, req)
	if !body.closed() {
		t.Error("the caller's body is not closed")
	}
}

func TestABodyOverTheLimit(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.MaxBody = 4
	for text, sent := range map[string]bool{"1234": true, "12345": false} {
		provider := failing()
		body := &closer{Reader: strings.NewReader(text)}
		req := post(t.Context(), serve(t, provider), "key-1", "")
		req.Body, req.GetBody, req.ContentLength = body, nil, -1
		res, err := clientOf(t, cfg).Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if sent != (err == nil) || sent != (len(provider.Calls()) > 0) || !body.closed() {
			t.Errorf("%d bytes: %v, %d calls, closed %v", len(text), err, len(provider.Calls()), body.closed())
		}
		if err != nil && !strings.Contains(err.Error(), "GetBody") {
			t.Errorf("%d bytes: %v does not say what to do", len(text), err)
		}
	}
	// with GetBody nothing is kept in memory, and there is no limit
	provider := failing()
	if status, _ := do(t, clientOf(t, cfg), post(t.Context(), serve(t, provider), "key-1",
		"12345")); status != http.StatusCreated {
		t.Errorf("GetBody: answer %d", status)
	}
}

var errRead = errors.New("cannot be read")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errRead }

func TestABodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	provider := failing()
	url := serve(t, provider)
	req := post(t.Context(), url, "key-1", "")
	req.Body, req.GetBody, req.ContentLength = io.NopCloser(broken{}), nil, -1
	if _, err := clientOf(t, quick()).Do(req); !errors.Is(err, errRead) { //nolint:bodyclose // there is none
		t.Errorf("%v, want the reader's error", err)
	}
	if n := len(provider.Calls()); n != 0 {
		t.Errorf("%d calls were made with a part of the body", n)
	}
	req = post(t.Context(), url, "key-1", "body")
	req.GetBody = func() (io.ReadCloser, error) { return nil, errRead }
	if _, err := clientOf(t, quick()).Do(req); !errors.Is(err, errRead) { //nolint:bodyclose // there is none
		t.Errorf("%v, want GetBody's error", err)
	}
}

func TestABodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	cause := errors.New("the drain is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	provider := failing()
	req := post(ctx, serve(t, provider), "key-1", "")
	req.Body, req.GetBody, req.ContentLength = r, nil, -1
	go func() {
		_, _ = io.WriteString(w, "half a")
		cancel(cause)
	}()
	if _, err := clientOf(t, quick()).Do(req); !errors.Is(err, cause) { //nolint:bodyclose // there is none
		t.Errorf("%v, want the context's cause", err)
	}
	if n := len(provider.Calls()); n != 0 {
		t.Errorf("%d calls were made with a part of the body", n)
	}
}

// The caller's request is as it was, whatever a base does with its own.
func TestTheRequestIsNotModified(t *testing.T) {
	t.Parallel()
	provider := failing()
	base := fresh(t)
	spoil := roundTripper(func(req *http.Request) (*http.Response, error) {
		req.Header.Set("X-Base", "was here")
		return base.RoundTrip(req)
	})
	client := &http.Client{Transport: idempotency.NewTransport(spoil, quick())}
	req := post(t.Context(), serve(t, provider), "key-1", "body")
	req.Header.Set("X-Own", "value")
	do(t, client, req)
	if len(req.Header) != 1 || req.Header.Get("X-Own") != "value" {
		t.Errorf("the request's header is %v", req.Header)
	}
	for _, call := range provider.Calls() {
		if call.Header.Get("X-Own") != "value" || len(call.Header.Values("X-Base")) != 1 {
			t.Errorf("call %d has the header %v", call.Number, call.Header)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Clients are known to keep one header map for all calls: each call has its own key all the same.
func TestCallsThatShareAHeaderMap(t *testing.T) {
	t.Parallel()
	provider := idempotencytest.NewProvider(nil)
	client := clientOf(t, quick())
	url := serve(t, provider)
	shared := http.Header{"Authorization": {"Bearer token"}}
	done := make(chan error)
	const calls = 30
	for i := range calls {
		go func() {
			key := idempotency.Key("call", string(rune('a'+i)))
			req := post(t.Context(), url, key, key)
			req.Header = shared
			res, err := client.Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			done <- err
		}()
	}
	for range calls {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, call := range provider.Calls() {
		if call.Key != string(call.Body) {
			t.Errorf("the call with the key %s was made for %s", call.Key, call.Body)
		}
	}
	if got := len(provider.Effects()); got != calls {
		t.Errorf("%d keys took effect, want %d", got, calls)
	}
}
