package servertest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// service is a server with one handler, and its database.
type service struct {
	*pgxpool.Pool
	URL string
	t   testing.TB
}

type handlerFunc = idempotency.TxHandler[pgx.Tx]

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := serverstest.Pool(t)
	for _, text := range []string{schema.Postgres.SQL(nil, schema.Idempotency),
		"create table effect (name text not null)"} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// start serves fn. Without a Principal there is one tenant.
func start(t testing.TB, fn handlerFunc, cfg idempotency.HandlerConfig) *service {
	t.Helper()
	pool := database(t)
	return &service{pool, serve(t, pool, fn, cfg), t}
}

func serve(t testing.TB, pool *pgxpool.Pool, fn handlerFunc, cfg idempotency.HandlerConfig) (url string) {
	t.Helper()
	cfg.SingleTenant = cfg.Principal == nil
	cfg.Logger = slog.New(slog.DiscardHandler)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), fn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, handler)
}

func listen(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func schemaSQL(in, table string) string {
	return schema.Postgres.SQL(&schema.Config{Schema: in, Tables: map[string]string{"idempotency_key": table}},
		schema.Idempotency)
}

// write is an effect.
func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "insert into effect values ('x')")
	return err
}

// answering writes an effect, and answers.
func answering(status int, body string) handlerFunc {
	return func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return nil
	}
}

func (s *service) effects() (n int) {
	s.t.Helper()
	if err := s.QueryRow(context.Background(), "select count(*) from effect").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *service) wantEffects(want int) {
	s.t.Helper()
	if n := s.effects(); n != want {
		s.t.Errorf("%d effects, want %d", n, want)
	}
}

// response is one that was read.
type response struct {
	*http.Response
	Text string
}

func (r *response) replayed() bool { return r.Header.Get(idempotency.ReplayedHeader) == "true" }

func (r *response) problem() string {
	var p struct {
		Type   string
		Title  string
		Status int
	}
	if r.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.Text), &p) != nil ||
		p.Status != r.StatusCode || p.Title == "" {
		return "none"
	}
	return p.Type
}

// send sends a request with one key.
func (s *service) send(method, path, key, body string) *response {
	s.t.Helper()
	return s.do(func(r *http.Request) {
		r.Header.Set("Idempotency-Key", key)
	}, method, path, strings.NewReader(body))
}

func (s *service) post(key string) *response {
	s.t.Helper()
	return s.send(http.MethodPost, "/", key, "{}")
}

// untilFree sends it until the server has noticed that a connection is gone, and its transaction with it.
func (s *service) untilFree(key string) *response {
	s.t.Helper()
	r := s.post(key)
	for deadline := time.Now().Add(time.Minute); r.StatusCode == http.StatusConflict && time.Now().Before(deadline); {
		r = s.post(key)
	}
	return r
}

// do sends a request that was changed, and reads the answer.
func (s *service) do(change func(*http.Request), method, path string, body io.Reader) *response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	change(req)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &response{resp, string(text)}
}

// wantProblem checks an answer of the Handler's own.
func (s *service) wantProblem(r *response, status int, problem string) {
	s.t.Helper()
	if r.StatusCode != status || r.problem() != problem {
		s.t.Errorf("answered %d %s %q, want %d %s", r.StatusCode, r.problem(), r.Text, status, problem)
	}
}

// want checks an answer of the handler's.
func (s *service) want(r *response, status int, body string, replayed bool) {
	s.t.Helper()
	if r.StatusCode != status || r.Text != body || r.replayed() != replayed {
		s.t.Errorf("answered %d %q, replayed %v, want %d %q, %v", r.StatusCode, r.Text, r.replayed(), status, body, replayed)
	}
}
