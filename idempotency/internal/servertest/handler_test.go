package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
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
		{200, true, true}, {201, true, true}, {202, true, true}, {204, true, true}, {301, true, true}, {303, true, true},
		{304, true, true},
		{400, false, true}, {402, false, true}, {404, false, true}, {409, false, true}, {410, false, true},
		{422, false, true},
		{401, false, false}, {403, false, false}, {408, false, false}, {425, false, false}, {429, false, false},
		{500, false, false}, {502, false, false}, {503, false, false}, {599, false, false}, {600, false, false},
		{999, false, false},
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
				if r.StatusCode != c.status || r.Text != c.problem && r.problem() != c.problem ||
					strings.Contains(r.Text, "secret") {
					t.Errorf("answered %d %s %q, want %d %s", r.StatusCode, r.problem(), r.Text, c.status, c.problem)
				}
				if unclear := strings.Contains(r.Text,
					"not known whether something has happened"); unclear != (name == "the transaction was ended") {
					t.Errorf("it says that something may have happened: %v", unclear)
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
		"/nothing": {200, ""}, "/hijack": {200, "true false"}, "/flush": {200, "true false"}, "/early": {201, ""},
		"/204": {204, ""}, "/304": {304, ""},
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
		return pgxoutbox.NewWriter(nil).Write(ctx, tx, outbox.Event{ID: fmt.Sprint(status), Topic: "orders",
			Value: []byte("{}")})
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
