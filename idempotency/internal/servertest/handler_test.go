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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

// What each status does to the effect and to a repetition, from a handler that returned nil.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status         int
		stays, replays bool
	}{
		{200, true, true}, {201, true, true}, {202, true, true}, {204, true, true}, {301, true, true}, {303, true, true}, {304, true, true},
		{400, false, true}, {402, false, true}, {404, false, true}, {409, false, true}, {410, false, true}, {422, false, true},
		{401, false, false}, {403, false, false}, {408, false, false}, {425, false, false}, {429, false, false},
		{500, false, false}, {502, false, false}, {503, false, false}, {599, false, false}, {600, false, false}, {999, false, false},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			t.Parallel()
			body := "the body"
			if c.status == 204 || c.status == 304 {
				body = ""
			}
			s := start(t, answering(c.status, "the body"), idempotency.HandlerConfig{})
			s.want(s.post("key"), c.status, body, false)
			s.want(s.post("key"), c.status, body, c.replays)
			want := 0
			if c.stays {
				want = 1
			}
			s.wantEffects(want)
		})
	}
}

// A refusal after a statement has failed, as after a unique violation, is an answer like others.
func TestRefusalAfterAFailedStatement(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into effect values (null)"); err == nil {
			return errors.New("no failure")
		}
		http.Error(w, "is there", http.StatusConflict)
		return nil
	}, idempotency.HandlerConfig{})
	s.want(s.post("key"), 409, "is there\n", false)
	s.want(s.post("key"), 409, "is there\n", true)
	s.wantEffects(0)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn      handlerFunc
		status  int
		problem string // or the text
	}{
		"error": {func(context.Context, pgx.Tx, http.ResponseWriter, *http.Request) error {
			return errors.New("secret")
		}, 500, idempotency.ProblemFailed},
		"error after an answer": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "done")
			return errors.New("secret")
		}, 500, idempotency.ProblemFailed},
		"error after a refusal": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusPaymentRequired)
			return errors.New("secret")
		}, 500, idempotency.ProblemFailed},
		"error with a 5xx": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "the bank is away")
			return errors.New("secret")
		}, 502, "the bank is away"},
		"ErrNotStored": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, "not that")
			return fmt.Errorf("invalid: %w", idempotency.ErrNotStored)
		}, 422, "not that"},
		"a statement failed": {func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			_, _ = tx.Exec(ctx, "insert into effect values (null)")
			w.WriteHeader(http.StatusCreated)
			return nil
		}, 500, idempotency.ProblemFailed},
		"the transaction was ended": {func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusServiceUnavailable) // which would be sent otherwise
			_ = tx.Commit(ctx)
			return nil
		}, 500, idempotency.ProblemFailed},
		"a deadlock": {func(ctx context.Context, tx pgx.Tx, _ http.ResponseWriter, _ *http.Request) error {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'x' using errcode = '40P01'; end $$")
			return err
		}, 503, idempotency.ProblemUnavailable},
		"too large": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
			return nil
		}, 500, idempotency.ProblemFailed},
		"too large a header": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Location", strings.Repeat("x", 2000))
			return nil
		}, 500, idempotency.ProblemFailed},
		"101": {func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusSwitchingProtocols)
			return nil
		}, 500, idempotency.ProblemFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				if err := write(ctx, tx); err != nil {
					return err
				}
				return c.fn(ctx, tx, w, r)
			}, idempotency.HandlerConfig{MaxAnswer: 1000})
			for range 2 { // the key stays free
				r := s.post("key")
				if r.StatusCode != c.status || r.Text != c.problem && r.problem() != c.problem || strings.Contains(r.Text, "secret") {
					t.Errorf("answered %d %s %q, want %d %s", r.StatusCode, r.problem(), r.Text, c.status, c.problem)
				}
				if retry := r.Header.Get("Retry-After"); (c.status == 503) != (retry == "1") {
					t.Errorf("Retry-After is %q", retry)
				}
			}
			s.wantEffects(0)
		})
	}
}

// A handler that does with w what cannot be done before a COMMIT.
func TestResponseWriter(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		switch r.URL.Path {
		case "/panic":
			w.WriteHeader(http.StatusCreated)
			panic(http.ErrAbortHandler)
		case "/invalid":
			w.WriteHeader(42)
		case "/hijack":
			_, _, err := http.NewResponseController(w).Hijack()
			_, is := w.(http.Hijacker)
			fmt.Fprint(w, errors.Is(err, http.ErrNotSupported), is)
		case "/flush":
			err := http.NewResponseController(w).Flush()
			_, is := w.(http.Flusher)
			fmt.Fprint(w, errors.Is(err, http.ErrNotSupported), is)
		case "/early":
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusContinue)
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusInternalServerError) // too late
			w.Header().Set("Link", "</late>")             // likewise
		case "/204", "/304":
			w.WriteHeader(map[string]int{"/204": 204, "/304": 304}[r.URL.Path])
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				return err
			}
		case "/length":
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Trailer", "Sum")
			fmt.Fprint(w, "short")
			w.Header().Set("Sum", "1")
		}
		return nil
	}, idempotency.HandlerConfig{})
	for _, path := range []string{"/panic", "/invalid"} {
		for range 2 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader("{}"))
			req.Header.Set("Idempotency-Key", "key"+path)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Errorf("%s: answered %d, want no answer, as net/http does", path, resp.StatusCode)
			}
		}
	}
	s.wantEffects(0)
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/nothing": {200, ""}, "/hijack": {200, "true false"}, "/flush": {200, "true false"}, "/early": {201, ""}, "/204": {204, ""}, "/304": {304, ""},
		"/length": {200, "short"},
	} {
		for _, replayed := range []bool{false, true} {
			r := s.send(http.MethodPost, path, "key"+path, "{}")
			s.want(r, want.status, want.body, replayed)
			if link := r.Header.Get("Link"); path == "/early" && link != "</a.css>" {
				t.Errorf("Link is %q", link)
			}
		}
	}
	s.wantEffects(7)
}

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
		{"/a?x=1&y=2&y=3", mediaType}, {"/a?y=2&y=3&x=1", mediaType}, {"/a?x=%31&y=2&y=3", mediaType}, {"/a?x=1&y=2&y=3", `Application/JSON;CHARSET="utf-8"`},
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
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), answering(201, "done"), idempotency.HandlerConfig{SingleTenant: true})
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
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), answering(201, "done"), idempotency.HandlerConfig{SingleTenant: true, Logger: slog.New(slog.DiscardHandler)})
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
		{"Content-Type": "application/json", "Location": "/orders/1", "X-Balance": "10", "X-Once": "1", "Set-Cookie": "session=secret"},
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
	if err := s.QueryRow(t.Context(), "select convert_from(response_headers, 'latin1') from idempotency_key").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(kept, "secret") || strings.Contains(kept, "X-Once") {
		t.Errorf("the table has %q", kept)
	}
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

func TestInProgress(t *testing.T) {
	t.Parallel()
	runs, end := make(chan struct{}), make(chan struct{})
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		close(runs)
		<-end
		w.WriteHeader(http.StatusCreated)
		return write(ctx, tx)
	}, idempotency.HandlerConfig{RetryAfter: 2100 * time.Millisecond})
	first := make(chan *response, 1)
	go func() { first <- s.post("key") }()
	<-runs
	r := s.post("key")
	s.wantProblem(r, http.StatusConflict, idempotency.ProblemInProgress)
	if retry := r.Header.Get("Retry-After"); retry != "3" {
		t.Errorf("Retry-After is %q, want 3", retry)
	}
	close(end)
	s.want(<-first, 201, "", false)
	s.want(s.post("key"), 201, "", true)
	s.wantEffects(1)
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{Keep: time.Millisecond})
	s.want(s.post("key"), 201, "done", false)
	for deadline := time.Now().Add(time.Minute); s.effects() < 2; {
		if time.Now().After(deadline) {
			t.Fatal("it does not expire")
		}
		if r := s.post("key"); r.StatusCode != http.StatusCreated {
			t.Fatalf("answered %d", r.StatusCode)
		}
	}
}

// The row of the outbox, the effect and the answer are one transaction.
func TestOutbox(t *testing.T) {
	t.Parallel()
	status := 500
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		w.WriteHeader(status)
		return pgxoutbox.NewWriter(nil).Write(ctx, tx, outbox.Event{ID: fmt.Sprint(status), Topic: "orders", Value: []byte("{}")})
	}, idempotency.HandlerConfig{})
	if _, err := s.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Outbox)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ status, rows int }{{500, 0}, {201, 1}, {201, 1}} {
		status = c.status
		if r := s.post("key"); r.StatusCode != c.status {
			t.Errorf("answered %d %s", r.StatusCode, r.Text)
		}
		var rows int
		if err := s.QueryRow(t.Context(), "select count(*) from outbox_event").Scan(&rows); err != nil || rows != c.rows {
			t.Errorf("%d rows in the outbox, %v, want %d", rows, err, c.rows)
		}
		s.wantEffects(c.rows)
	}
}

// A handler adds to the header that middlewares outside have begun, as it does to every other writer's. A replay has theirs of today, and
// of the handler's what is stored.
func TestHeadersOfMiddlewares(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
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
		if h := r.Header; !slices.Equal(h.Values("Vary"), []string{"Origin", "Accept"}) || !slices.Equal(h.Values("Set-Cookie"), cookies) || h.Get("X-Outer") != outer || h.Get("X-Seen") != seen {
			t.Errorf("%d: %q", r.StatusCode, h)
		}
	}
	both := []string{"outer=1", "inner=1"}
	want(s.post("key"), both, "", "outer")
	want(s.post("key"), []string{"outer=1"}, "outer", "")
	want(s.send(http.MethodPost, "/fails", "other", "{}"), both, "", "outer")
	want(s.do(func(*http.Request) {}, http.MethodPost, "/", nil), both, "", "outer")
}

// What a header must not have, a file name of a user's for example, keeps no answer from being replayed: its effect has happened.
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
		if !strings.HasPrefix(string(text), "HTTP/1.1 201 ") || i > 0 && !strings.Contains(string(text), "\r\nContent-Disposition: attachment; filename=a     b\xe9.pdf\r\n") {
			t.Errorf("answer %d: %q, %v", i, text, err)
		}
	}
	s.wantEffects(1)
}
