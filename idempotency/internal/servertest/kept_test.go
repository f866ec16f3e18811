package servertest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// An answer is kept for as long as it was asked for, and for a day by default.
func TestKeptForSoLong(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, 90 * time.Minute: 90 * time.Minute,
		30 * 24 * time.Hour: 30 * 24 * time.Hour} {
		s := start(t, answering(201, "done"), idempotency.HandlerConfig{Keep: keep})
		s.want(s.post("key"), 201, "done", false)
		var left float64
		if err := s.QueryRow(t.Context(),
			"select extract(epoch from expires_at - created_at)::float8 from idempotency_key").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(left * float64(time.Second)); got < want-time.Minute || got > want+time.Minute {
			t.Errorf("Keep %v: it is kept for %v, want %v", keep, got, want)
		}
	}
}

// One principal's request in progress keeps nobody else's waiting, though they have the same key.
func TestInProgressOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	pool := database(t)
	runs, end := make(chan struct{}), make(chan struct{})
	cfg := idempotency.HandlerConfig{Principal: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }}
	s := &service{pool, serve(t, pool, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		if r.Header.Get("User") == "anna" {
			close(runs)
			<-end
		}
		w.WriteHeader(http.StatusCreated)
		return write(ctx, tx)
	}, cfg), t}
	send := func(user string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("User", user)
			r.Header.Set("Idempotency-Key", "key")
		}, http.MethodPost, "/", strings.NewReader("{}"))
	}
	first := make(chan *response, 1)
	go func() { first <- send("anna") }()
	<-runs
	s.want(send("ben"), 201, "", false)
	s.wantProblem(send("anna"), http.StatusConflict, idempotency.ProblemInProgress)
	close(end)
	s.want(<-first, 201, "", false)
	s.wantEffects(2)
}

// A principal whose name is spelled like the hash of another one's is not that one.
func TestPrincipalThatLooksLikeAHash(t *testing.T) {
	t.Parallel()
	pool := database(t)
	long := strings.Repeat("x", 300)
	sum := sha256.Sum256([]byte(long))
	name := long
	s := &service{pool, serve(t, pool, answering(201, "secret"),
		idempotency.HandlerConfig{Principal: func(*http.Request) (string, error) { return name, nil }}), t}
	s.want(s.post("key"), 201, "secret", false)
	name = "sha256:" + hex.EncodeToString(sum[:])
	s.want(s.post("key"), 201, "secret", false)
	name = long
	s.want(s.post("key"), 201, "secret", true)
	s.wantEffects(2)
}

// Without a key a refusal has no effect either.
func TestRefusalWithoutAKey(t *testing.T) {
	t.Parallel()
	for status, effects := range map[int]int{201: 1, 303: 1, 400: 0, 422: 0, 403: 0, 500: 0} {
		s := start(t, answering(status, "said"), idempotency.HandlerConfig{KeyOptional: true})
		s.want(s.do(func(*http.Request) {}, http.MethodPost, "/", strings.NewReader("{}")), status, "said", false)
		s.wantEffects(effects)
	}
}

// A safe request whose outcome is unknown may be repeated.
func TestOutcomeUnknownOfASafeRequest(t *testing.T) {
	t.Parallel()
	pool, network := database(t), &cutter{}
	s := &service{pool, serve(t, behind(t, pool, network.dial), answering(200, "done"),
		idempotency.HandlerConfig{KeyOptional: true}), t}
	network.armed.Store(true)
	for method, says := range map[string]string{http.MethodGet: `"repeat the request later"`,
		http.MethodPost: "may take effect again"} {
		r := s.do(func(*http.Request) {}, method, "/", nil)
		s.wantProblem(r, http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
		if !strings.Contains(r.Text, says) || (r.Header.Get("Retry-After") != "") != (method == http.MethodGet) {
			t.Errorf("%s: %s, Retry-After %q", method, r.Text, r.Header.Get("Retry-After"))
		}
	}
}

// A table that is locked, by a migration for example, is the database's fault, and said to be so within CommitTimeout.
func TestTableLocked(t *testing.T) {
	t.Parallel()
	pool := database(t)
	migration, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = migration.Rollback(context.Background()) }()
	if _, err := migration.Exec(t.Context(), "lock table idempotency_key"); err != nil {
		t.Fatal(err)
	}
	store := pgxidempotency.New(pool, &pgxidempotency.Config{CommitTimeout: 200 * time.Millisecond})
	req := idempotency.Request{Key: "key", Keep: time.Hour}
	_, _, err = store.Once(t.Context(), req, func(context.Context, pgx.Tx) (idempotency.Answer, error) {
		return idempotency.Answer{}, errors.New("it has run")
	})
	if dedupstore.ClassOf(err) != dedupstore.Unavailable ||
		!strings.Contains(err.Error(), "no answer within CommitTimeout") {
		t.Errorf("%v, want that it is unavailable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err = pgxidempotency.New(pool, nil).Once(ctx, req, nil)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "CommitTimeout") {
		t.Errorf("%v, want the caller's own time-out", err)
	}
}
