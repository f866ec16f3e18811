package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

// closedPort is the address of a port that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(nil)
	server.Close()
	return server.URL
}

// What net/http does not send is not sent again, and the error says that nothing was.
func TestWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	plain := serve(t, &statuses{codes: []int{200}})
	for name, tc := range map[string]struct {
		change func(*http.Request)
		cfg    func(*idempotency.TransportConfig)
	}{
		"scheme":         {change: func(r *http.Request) { r.URL.Scheme = "htp" }},
		"no scheme":      {change: func(r *http.Request) { r.URL.Scheme = "" }},
		"no host":        {change: func(r *http.Request) { r.URL.Host = "" }},
		"header's name":  {change: func(r *http.Request) { r.Header["a b"] = []string{"x"} }},
		"header's value": {change: func(r *http.Request) { r.Header["A"] = []string{"x\n"} }},
		"trailer":        {change: func(r *http.Request) { r.Trailer = http.Header{"a b": {"x"}} }},
		"method":         {change: func(r *http.Request) { r.Method = "PO ST" }},
		"no address":     {change: func(r *http.Request) { r.URL = nil }},
		"no TLS there":   {change: func(r *http.Request) { r.URL.Scheme = "https" }},
		"body too long": {
			change: func(r *http.Request) { r.GetBody = nil },
			cfg:    func(c *idempotency.TransportConfig) { c.MaxBody = 1 },
		},
		"key": {change: func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"a", "b"} }},
	} {
		cfg := quick()
		cfg.OnRetry = func(_ context.Context, r idempotency.Retry) { t.Errorf("%s: repeated after %v", name, r.Err) }
		if tc.cfg != nil {
			tc.cfg(cfg)
		}
		req := post(t.Context(), plain, "key-1", "body")
		tc.change(req)
		res, err := idempotency.NewTransport(fresh(t), cfg).RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if !errors.Is(err, idempotency.ErrNotSent) || strings.Contains(err.Error(), "taken effect") {
			t.Errorf("%s: %v, want an error that wraps ErrNotSent", name, err)
		}
	}
}

// What never gets a connection is repeated, and was not sent.
func TestWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // whose TLS handshakes do not end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	for name, tc := range map[string]struct {
		url  string
		base func(*http.Transport)
	}{
		"refused": {url: closedPort(t)},
		"no name": {url: "http://name.invalid/", base: func(b *http.Transport) { b.DialContext = noName }},
		"TLS handshake": {url: "https://" + deaf.Addr().String(),
			base: func(b *http.Transport) { b.TLSHandshakeTimeout = 50 * time.Millisecond }},
		"proxy": {url: "https://provider.example", base: func(b *http.Transport) {
			proxy, _ := url.Parse(serve(t, &statuses{codes: []int{502}}))
			b.Proxy = http.ProxyURL(proxy)
		}},
	} {
		base := fresh(t)
		if tc.base != nil {
			tc.base(base)
		}
		cfg := quick()
		cfg.Attempts = 3
		_, err := (&http.Client{Transport: idempotency.NewTransport(base, cfg)}).Do(post(t.Context(), tc.url, "key-1", "body")) //nolint:bodyclose // there is none
		gaveUp, ok := errors.AsType[*idempotency.GaveUp](err)
		if !ok || gaveUp.Attempts != 3 || !errors.Is(err, idempotency.ErrNotSent) ||
			strings.Contains(err.Error(), "taken effect") {
			t.Errorf("%s: %v, want an error after 3 attempts that wraps ErrNotSent", name, err)
		}
	}
}

func noName(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
}

// One attempt that may have arrived is enough, whatever became of those before and after it.
func TestWhatMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	hangUp := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	for name, protocol := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		server := httptest.NewUnstartedServer(hangUp)
		server.EnableHTTP2 = protocol
		server.StartTLS()
		t.Cleanup(server.Close)
		for _, open := range []int{1, 2, 3} { // the attempt that gets a connection
			base := server.Client().Transport.(*http.Transport).Clone()
			base.DisableKeepAlives = !protocol
			t.Cleanup(base.CloseIdleConnections)
			n := 0
			only := roundTripper(func(r *http.Request) (*http.Response, error) {
				if n++; n != open {
					return fresh(t).RoundTrip(r)
				}
				r.URL, _ = url.Parse(server.URL)
				return base.RoundTrip(r)
			})
			cfg := quick()
			cfg.Attempts = 3
			_, err := (&http.Client{Transport: idempotency.NewTransport(only, cfg)}).Do(post(t.Context(), closedPort(t), "key-1", "body")) //nolint:bodyclose // there is none
			if err == nil || errors.Is(err, idempotency.ErrNotSent) || !strings.Contains(err.Error(), "may have taken effect") {
				t.Errorf("%s, attempt %d: %v, want an error that says that it may have taken effect", name, open, err)
			}
		}
	}
	// a base that tells nothing of what it does
	silent := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no") })
	_, err := idempotency.NewTransport(silent, quick()).RoundTrip(post(t.Context(), "http://provider", "key-1", "body")) //nolint:bodyclose // there is none
	if err == nil || errors.Is(err, idempotency.ErrNotSent) {
		t.Errorf("a base that tells nothing: %v", err)
	}
}
