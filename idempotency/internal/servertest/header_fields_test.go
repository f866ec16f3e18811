package servertest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Location", "/orders/1")
		h.Set("X-Balance", "10")
		h.Set("X-Once", "1")
		h.Set("Set-Cookie", "session=secret")
		w.WriteHeader(http.StatusCreated)
		return nil
	}, idempotency.HandlerConfig{ReplayHeaders: []string{"x-balance"}})
	for i, want := range []map[string]string{
		{"Content-Type": "application/json", "Location": "/orders/1", "X-Balance": "10", "X-Once": "1",
			"Set-Cookie": "session=secret"},
		{"Content-Type": "application/json", "Location": "/orders/1", "X-Balance": "10", "X-Once": "", "Set-Cookie": ""},
	} {
		r := s.post("key")
		for name, value := range want {
			if got := r.Header.Get(name); got != value {
				t.Errorf("answer %d: %s is %q, want %q", i, name, got, value)
			}
		}
	}
	var kept string
	if err := s.QueryRow(t.Context(),
		"select convert_from(response_headers, 'latin1') from idempotency_key").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(kept, "secret") || strings.Contains(kept, "X-Once") {
		t.Errorf("the table has %q", kept)
	}
}

// A handler adds to the header that middlewares outside have begun, as it does to every other writer's. A replay has
// theirs of today, and of the handler's what is stored.
func TestHeadersOfMiddlewares(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil),
		func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
			h := w.Header()
			h.Add("Vary", "Accept")
			h.Add("Set-Cookie", "inner=1")
			h.Set("X-Seen", h.Get("X-Outer"))
			h.Del("X-Outer")
			w.WriteHeader(map[bool]int{true: 201, false: 500}[r.URL.Path == "/"])
			return nil
		}, idempotency.HandlerConfig{SingleTenant: true, KeyOptional: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{pool, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		w.Header().Add("Set-Cookie", "outer=1")
		w.Header().Set("X-Outer", "outer")
		handler.ServeHTTP(w, r)
	})), t}
	want := func(r *response, cookies []string, outer, seen string) {
		t.Helper()
		if h := r.Header; !slices.Equal(h.Values("Vary"), []string{"Origin", "Accept"}) ||
			!slices.Equal(h.Values("Set-Cookie"), cookies) || h.Get("X-Outer") != outer || h.Get("X-Seen") != seen {
			t.Errorf("%d: %q", r.StatusCode, h)
		}
	}
	both := []string{"outer=1", "inner=1"}
	want(s.post("key"), both, "", "outer")
	want(s.post("key"), []string{"outer=1"}, "outer", "")
	want(s.send(http.MethodPost, "/fails", "other", "{}"), both, "", "outer")
	want(s.do(func(*http.Request) {}, http.MethodPost, "/", nil), both, "", "outer")
}

// What a header must not have, a file name of a user's for example, keeps no answer from being replayed: its effect has
// happened.
func TestHeaderThatIsNotLegal(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Disposition", "attachment; filename=a\x01\x00\r\n\x7fb\xe9.pdf")
		w.WriteHeader(http.StatusCreated)
		return write(ctx, tx)
	}, idempotency.HandlerConfig{})
	for i := range 3 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: key\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(conn) // Go's client would refuse the first one
		_ = conn.Close()
		if !strings.HasPrefix(string(text), "HTTP/1.1 201 ") || i > 0 &&
			!strings.Contains(string(text), "\r\nContent-Disposition: attachment; filename=a     b\xe9.pdf\r\n") {
			t.Errorf("answer %d: %q, %v", i, text, err)
		}
	}
	s.wantEffects(1)
}
