package servertest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{})
	send := func(method, path, mediaType, body string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "key")
			r.Header.Set("Content-Type", mediaType)
		}, method, path, strings.NewReader(body))
	}
	const mediaType = `application/json; charset=utf-8`
	s.want(send("POST", "/a?x=1&y=2&y=3", mediaType, "{}"), 201, "done", false)
	for _, same := range []struct{ path, mediaType string }{
		{"/a?x=1&y=2&y=3", mediaType}, {"/a?y=2&y=3&x=1", mediaType}, {"/a?x=%31&y=2&y=3", mediaType},
		{"/a?x=1&y=2&y=3", `Application/JSON;CHARSET="utf-8"`},
	} {
		s.want(send("POST", same.path, same.mediaType, "{}"), 201, "done", true)
	}
	chunked := s.do(func(r *http.Request) {
		r.Header.Set("Idempotency-Key", `"key"`)
		r.Header.Set("Content-Type", mediaType)
	}, "POST", "/a?x=1&y=2&y=3", io.MultiReader(strings.NewReader("{"), strings.NewReader("}")))
	s.want(chunked, 201, "done", true)
	for _, other := range []struct{ method, path, mediaType, body string }{
		{"PUT", "/a?x=1&y=2&y=3", mediaType, "{}"},
		{"POST", "/b?x=1&y=2&y=3", mediaType, "{}"},
		{"POST", "/a/?x=1&y=2&y=3", mediaType, "{}"},
		{"POST", "/a?x=1&y=3&y=2", mediaType, "{}"},
		{"POST", "/a?x=2&y=2&y=3", mediaType, "{}"},
		{"POST", "/a", mediaType, "{}"},
		{"POST", "/a?x=1&y=2&y=3", "application/json", "{}"},
		{"POST", "/a?x=1&y=2&y=3", "text/plain; charset=utf-8", "{}"},
		{"POST", "/a?x=1&y=2&y=3", mediaType, "{ }"},
		{"POST", "/a?x=1&y=2&y=3", mediaType, ""},
	} {
		r := send(other.method, other.path, other.mediaType, other.body)
		s.wantProblem(r, http.StatusUnprocessableEntity, idempotency.ProblemOtherRequest)
	}
	s.wantEffects(1)
}

// What a mux cuts off the path still tells requests apart.
func TestFingerprintBehindStripPrefix(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), answering(201, "done"),
		idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/a/", http.StripPrefix("/a", handler))
	mux.Handle("/b/", http.StripPrefix("/b", handler))
	server := httptest.NewServer(mux)
	defer server.Close()
	s := &service{pool, server.URL, t}
	s.want(s.send("POST", "/a/x", "key", ""), 201, "done", false)
	s.wantProblem(s.send("POST", "/b/x", "key", ""), 422, idempotency.ProblemOtherRequest)
}

func TestBodies(t *testing.T) {
	t.Parallel()
	var seen string
	s := start(t, func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		seen = fmt.Sprint(len(b), r.ContentLength, r.TransferEncoding)
		w.WriteHeader(http.StatusCreated)
		return err
	}, idempotency.HandlerConfig{MaxBody: 100})
	for size, status := range map[int]int{0: 201, 100: 201, 101: 413, 100_000: 413} {
		text := strings.Repeat("x", size)
		for i, body := range []io.Reader{strings.NewReader(text), io.MultiReader(strings.NewReader(text))} { // the other one is chunked
			seen = ""
			r := s.do(func(r *http.Request) { r.Header.Set("Idempotency-Key", fmt.Sprint(size, "-", i)) }, "POST", "/", body)
			if status == 413 {
				s.wantProblem(r, 413, idempotency.ProblemTooLarge)
			} else if want := fmt.Sprint(size, int64(size), []string(nil)); r.StatusCode != status || seen != want {
				t.Errorf("%d bytes: answered %d, the handler has seen %s, want %d, %s", size, r.StatusCode, seen, status, want)
			}
		}
	}
}

// A client that sends half of its body, and goes or waits for an answer.
func TestHalfABody(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: key\r\nContent-Length: 10\r\n\r\n12345")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	s.wantProblem(&response{resp, string(text)}, 400, idempotency.ProblemUnreadable)
	s.wantEffects(0)
}

func TestBodyThatWasReadBefore(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), answering(201, "done"),
		idempotency.HandlerConfig{SingleTenant: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	s := &service{pool, server.URL, t}
	s.wantProblem(s.post("key"), 500, idempotency.ProblemFailed)
	s.wantEffects(0)
}

func TestPrincipals(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		fmt.Fprint(w, len(r.Header.Get("User")))
		return write(ctx, tx)
	}, idempotency.HandlerConfig{Principal: func(r *http.Request) (string, error) {
		if r.Header.Get("User") == "broken" {
			return "admin", errors.New("no")
		}
		return r.Header.Get("User"), nil
	}})
	as := func(user string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "key")
			r.Header.Set("User", user)
		}, "POST", "/", strings.NewReader("{}"))
	}
	users := []string{
		"a", "bc", strings.Repeat("d", 200), strings.Repeat("e", 201), strings.Repeat("f", 5000),
		"sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35", "no\xfftext",
	}
	for _, user := range users {
		s.want(as(user), 200, fmt.Sprint(len(user)), false)
		s.want(as(user), 200, fmt.Sprint(len(user)), true)
	}
	s.wantEffects(len(users))
	for _, user := range []string{"", "broken"} {
		s.wantProblem(as(user), http.StatusForbidden, idempotency.ProblemNoPrincipal)
	}
	s.wantEffects(len(users))
}
