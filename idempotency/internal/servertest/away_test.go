package servertest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// cutter is a network that loses the answer to COMMIT, after the server has sent it, while it is armed.
type cutter struct{ armed atomic.Bool }

type cutConn struct {
	net.Conn
	cutter  *cutter
	commits atomic.Bool
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &cutConn{Conn: conn, cutter: c}, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.commits.Store(c.cutter.armed.Load() && bytes.Contains(b, []byte("commit\x00")))
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.commits.Load() && n > 0 {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// behind is a pool on the same database with another way of dialling.
func behind(t testing.TB, pool *pgxpool.Pool, dial func(ctx context.Context, network, addr string) (net.Conn,
	error)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config().Copy()
	cfg.ConnConfig.DialFunc = dial
	other, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// A COMMIT whose answer is lost has happened: the client is told to repeat, and gets what the handler had answered.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	pool, network := database(t), &cutter{}
	s := &service{pool, serve(t, behind(t, pool, network.dial), answering(201, "done"), idempotency.HandlerConfig{}), t}
	network.armed.Store(true)
	r := s.post("key")
	s.wantProblem(r, http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	network.armed.Store(false)
	s.want(s.post("key"), 201, "done", true)
	s.wantEffects(1)
}

// A client that sent no key is not told that it may repeat the request.
func TestOutcomeUnknownWithoutAKey(t *testing.T) {
	t.Parallel()
	pool, network := database(t), &cutter{}
	s := &service{pool, serve(t, behind(t, pool, network.dial), answering(201, "done"),
		idempotency.HandlerConfig{KeyOptional: true}), t}
	network.armed.Store(true)
	r := s.do(func(*http.Request) {}, http.MethodPost, "/", nil)
	s.wantProblem(r, http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	if r.Header.Get("Retry-After") != "" ||
		!strings.Contains(r.Text, "had no Idempotency-Key, and it is not known whether it took effect") {
		t.Errorf("Retry-After %q, %s", r.Header.Get("Retry-After"), r.Text)
	}
	s.wantEffects(1)
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	pool := database(t)
	network := behind(t, pool, func(ctx context.Context, network, addr string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("no route")
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	s := &service{pool, serve(t, network, answering(201, "done"), idempotency.HandlerConfig{}), t}
	away.Store(true)
	s.wantProblem(s.post("key"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	away.Store(false)
	s.want(s.post("key"), 201, "done", false)

	if _, err := pool.Exec(t.Context(), "alter table idempotency_key rename to elsewhere"); err != nil { // a failing store is no reason to run without it
		t.Fatal(err)
	}
	s.wantProblem(s.post("key"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	s.wantProblem(s.post("other"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	s.wantEffects(1)
}

// The server ends the session in the midst of the handler, which takes no notice.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	lose := true
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		if lose {
			_, _ = tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	}, idempotency.HandlerConfig{})
	s.wantProblem(s.post("key"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	s.wantEffects(0)
	lose = false
	s.want(s.untilFree("key"), 201, "", false)
	s.wantEffects(1)
}

// An answer whose COMMIT fails has not been sent.
func TestNothingIsSentBeforeCommit(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, strings.Repeat("done", 50_000)), idempotency.HandlerConfig{})
	const refuse = `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'at commit'; end $$;
		create constraint trigger refuse after insert on effect deferrable initially deferred for each row execute function refuse()`
	if _, err := s.Exec(t.Context(), refuse); err != nil {
		t.Fatal(err)
	}
	s.wantProblem(s.post("key"), http.StatusInternalServerError, idempotency.ProblemFailed)
	if _, err := s.Exec(t.Context(), "drop trigger refuse on effect"); err != nil {
		t.Fatal(err)
	}
	s.want(s.post("key"), 201, strings.Repeat("done", 50_000), false)
	s.wantEffects(1)
}

// The context of a request ends while its client waits, as behind http.TimeoutHandler: it is told to come again.
func TestContextDone(t *testing.T) {
	t.Parallel()
	cancels := true
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), answering(201, "done"),
		idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{pool, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if cancels {
			cancel()
		}
		handler.ServeHTTP(w, r.WithContext(ctx))
	})), t}
	s.wantProblem(s.post("key"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	cancels = false
	s.want(s.post("key"), 201, "done", false)
}
