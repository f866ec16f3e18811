package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

const settings = `select current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')
	|| ' ' || current_setting('transaction_isolation')`

// The function's statements have the session's own lock_timeout, whoever set it, and READ COMMITTED, whatever the
// default.
func TestSettingsInTheFunction(t *testing.T) {
	t.Parallel()
	db := open(t)
	for name, c := range map[string]struct {
		change func(*pgxpool.Config)
		cfg    *pgxstore.Config
		want   string
	}{
		"defaults": {nil, nil, "0 1min read committed"},
		"runtime parameters": {func(cfg *pgxpool.Config) {
			cfg.ConnConfig.RuntimeParams["lock_timeout"] = "7s"
			cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "8s"
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		}, &pgxstore.Config{IdleTimeout: 9 * time.Second}, "7s 8s read committed"},
		"set in the session": {func(cfg *pgxpool.Config) {
			cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
				_, err := c.Exec(ctx, "set lock_timeout = '1234ms'")
				return err
			}
		}, &pgxstore.Config{LockTimeout: time.Millisecond}, "1234ms 1min read committed"},
	} {
		for _, mode := range modes {
			pool := db.pool(func(cfg *pgxpool.Config) {
				cfg.MaxConns = 1
				inMode(mode)(cfg)
				if c.change != nil {
					c.change(cfg)
				}
			})
			setting := func(q interface {
				QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
			}) (s string) {
				if err := q.QueryRow(t.Context(), settings).Scan(&s); err != nil {
					t.Error(err)
				}
				return s
			}
			before := setting(pool)
			_, err := pgxstore.New(pool, c.cfg).Once(t.Context(), key(name+mode.String()),
				func(_ context.Context, tx pgx.Tx) error {
					if got := setting(tx); got != c.want {
						t.Errorf("%s, %v: in the function: %s, want %s", name, mode, got, c.want)
					}
					return nil
				})
			if err != nil {
				t.Errorf("%s, %v: %v", name, mode, err)
			}
			if after := setting(pool); after != before {
				t.Errorf("%s, %v: the session has %s after the transaction, and had %s before", name, mode, after, before)
			}
		}
	}
}

// hold runs a function that does nothing until the returned one is called.
func hold(t *testing.T, store *pgxstore.Store, k dedupstore.Key) (release func()) {
	t.Helper()
	entered, released, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, err := store.Once(context.Background(), k, func(context.Context, pgx.Tx) error {
			close(entered)
			<-released
			return nil
		})
		if err != nil {
			t.Errorf("the holder: %v", err)
		}
	}()
	select {
	case <-entered:
	case <-done:
		t.Fatal("the holder's function did not run")
	}
	return func() {
		close(released)
		<-done
	}
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()
	db := open(t)
	release := hold(t, pgxstore.New(db.Pool, nil), key("held"))
	defer release()

	begin := time.Now()
	ran, err := pgxstore.New(db.Pool, &pgxstore.Config{LockTimeout: 50 * time.Millisecond}).Once(t.Context(), key("held"),
		writes("second"))
	var pgErr *pgconn.PgError
	if ran || !errors.As(err, &pgErr) || pgErr.Code != "55P03" || !strings.Contains(err.Error(), "LockTimeout (50ms)") {
		t.Errorf("Once() = %v, %v, want lock_not_available", ran, err)
	}
	if waited := time.Since(begin); waited < 50*time.Millisecond {
		t.Errorf("it gave up after %v", waited)
	}
}

// The table may be locked too, by a migration.
func TestLockTimeoutOnTheTable(t *testing.T) {
	t.Parallel()
	db := open(t)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "lock table processed_event in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		cfg := &pgxstore.Config{LockTimeout: 50 * time.Millisecond, CommitTimeout: 100 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // against hanging
		_, err := pgxstore.New(db.pool(inMode(mode)), cfg).Once(ctx, key("any"), writes("any"))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "LockTimeout") {
			t.Errorf("%v: Once: %v, want an error that names LockTimeout", mode, err)
		}
	}
}

// A lock that the function waits for has nothing to do with LockTimeout.
func TestLockTimeoutIsNotTheFunctions(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("insert into effect values ('locked')")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from effect for update"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := pgxstore.New(db.Pool, &pgxstore.Config{LockTimeout: time.Millisecond}).Once(t.Context(), key("waits"),
			exec("update effect set name = 'changed'"))
		done <- err
	}()
	pgtest.Eventually(t, "the function waits, longer than LockTimeout", func() bool {
		return value[bool](db, `select exists (select from pg_locks l join pg_stat_activity a using (pid) join pg_locks w using (pid)
			where not l.granted and w.relation = 'effect'::regclass and clock_timestamp() > a.query_start + interval '20 ms')`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Once: %v", err)
	}
}

func TestIdleTimeoutIsExplained(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, &pgxstore.Config{IdleTimeout: 50 * time.Millisecond})
	ran, err := store.Once(t.Context(), key("sleepy"), func(_ context.Context, tx pgx.Tx) error {
		pid := tx.Conn().PgConn().PID()
		pgtest.Eventually(t, "the server ends the session", func() bool {
			return value[int](db, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
		})
		return nil
	})
	if ran || err == nil || errors.Is(err, dedupstore.ErrOutcomeUnknown) ||
		!strings.Contains(err.Error(), "IdleTimeout (50ms)") {
		t.Errorf("Once() = %v, %v, want false and an error that names IdleTimeout", ran, err)
	}
}

// The next statement of a function meets the session that the server has ended. It is the function that took its time:
// the attempt counts.
func TestIdleTimeoutIsExplainedByTheNextStatement(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, &pgxstore.Config{IdleTimeout: 50 * time.Millisecond})
	ran, err := store.Once(t.Context(), key("sleepy"), func(ctx context.Context, tx pgx.Tx) error {
		pid := tx.Conn().PgConn().PID()
		pgtest.Eventually(t, "the server ends the session", func() bool {
			return value[int](db, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
		})
		return write(ctx, tx, "late")
	})
	if ran || err == nil || dedupstore.ClassOf(err) != dedupstore.Unclassified ||
		!strings.Contains(err.Error(), "IdleTimeout (50ms)") {
		t.Errorf("Once() = %v, %v (%v), want false and an error that names IdleTimeout", ran, err, dedupstore.ClassOf(err))
	}
}

// A call whose context ends while it waits returns soon, and says why.
func TestContextEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	db := open(t)
	release := hold(t, pgxstore.New(db.Pool, nil), key("held"))
	defer release()
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := pgxstore.New(db.Pool, nil).Once(ctx, key("held"), writes("second"))
		done <- err
	}()
	pgtest.Eventually(t, "the second call waits", func() bool {
		n, err := db.Waiting(t.Context())
		return err == nil && n == 1
	})
	cancel(why)
	if err := <-done; !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("Once: %v, want the cause", err)
	}
}

// COMMIT goes on when the context of Once ends.
func TestCommitIgnoresTheContext(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	pool := db.pool(func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = onQuery{"commit", cancel} })
	ran, err := pgxstore.New(pool, nil).Once(ctx, key("committed"), writes("committed"))
	if !ran || err != nil || ctx.Err() == nil {
		t.Errorf("Once() = %v, %v with a context that ended at COMMIT (%v)", ran, err, ctx.Err())
	}
	if n := db.Effects(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// onQuery calls a function when pgx is about to send a text.
type onQuery struct {
	sql  string
	call func()
}

func (q onQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == q.sql {
		q.call()
	}
	return ctx
}

func (q onQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
