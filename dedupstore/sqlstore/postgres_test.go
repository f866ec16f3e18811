package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

var drivers = []sqltest.Driver{cached, sqltest.Pgx(pgx.QueryExecModeSimpleProtocol), sqltest.Pgdriver}

// open opens a pool of one driver on a fresh database.
func open(t *testing.T, driver sqltest.Driver, dialer *faultconn.Dialer) (*pgtest.Database, *sql.DB) {
	t.Helper()
	db := pgtest.Open(t, pgtest.Plain)
	pool := driver.Open(t, db.URL, dialer)
	t.Cleanup(func() { _ = pool.Close() })
	return db, pool
}

// each runs f for each driver, side by side.
func each(t *testing.T, f func(t *testing.T, driver sqltest.Driver)) {
	t.Helper()
	for _, driver := range drivers {
		t.Run(driver.Name, func(t *testing.T) {
			t.Parallel()
			f(t, driver)
		})
	}
}

const settings = `select current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')
	|| ' ' || current_setting('transaction_isolation')`

// The function's statements have the session's own lock_timeout, and READ COMMITTED, whatever the default.
func TestSettingsInTheFunction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		_, pool := open(t, driver, nil)
		pool.SetMaxOpenConns(1)
		if _, err := pool.ExecContext(t.Context(),
			"set lock_timeout = '1234ms'; set default_transaction_isolation = serializable"); err != nil {
			t.Fatal(err)
		}
		cfg := &sqlstore.Config{LockTimeout: time.Millisecond, IdleTimeout: 9 * time.Second}
		var inside, after string
		ran, err := sqlstore.New(pool, schema.Postgres, cfg).Once(t.Context(), key("e"),
			func(ctx context.Context, tx *sql.Tx) error {
				return tx.QueryRowContext(ctx, settings).Scan(&inside)
			})
		if !ran || err != nil || inside != "1234ms 9s read committed" {
			t.Errorf("Once() = %v, %v, in the function: %s", ran, err, inside)
		}
		if err := pool.QueryRowContext(t.Context(), settings).Scan(&after); err != nil || after != "1234ms 0 serializable" {
			t.Errorf("the session has %s after the transaction, %v", after, err)
		}
	})
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		dialer := &faultconn.Dialer{}
		_, pool := open(t, driver, dialer)
		pool.SetMaxOpenConns(1)
		store := sqlstore.New(pool, schema.Postgres, nil)
		trips := func(event string, wantRan bool) int {
			before := dialer.Trips()
			if ran, err := store.Once(t.Context(), key(event), writes(event)); ran != wantRan || err != nil {
				t.Fatalf("Once() = %v, %v, want %v", ran, err, wantRan)
			}
			return dialer.Trips() - before
		}
		trips("warm up", true)
		trips("warm up", false) // pgx pings a session before its second use
		if n := trips("first", true); n != 5 {
			t.Errorf("%d round trips with one statement in the function, want 5", n)
		}
		if n := trips("first", false); n != 3 {
			t.Errorf("%d round trips for a duplicate, want 3", n)
		}
	})
}

// The call's context ends while the function runs, and the function does not notice: nothing is left of it, and the
// connection is fit for the next.
func TestContextOfTheCallEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		db, pool := open(t, driver, nil)
		pool.SetMaxOpenConns(1)
		store := sqlstore.New(pool, schema.Postgres, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		ran, err := store.Once(ctx, key("e"), func(ctx context.Context, tx *sql.Tx) error {
			err := writes("before")(ctx, tx)
			cancel(why)
			_, late := tx.ExecContext(context.WithoutCancel(ctx), "insert into effect values ('after')") // still in the transaction
			return errors.Join(err, late)
		})
		if ran || !errors.Is(err, why) || dedupstore.ClassOf(err) != dedupstore.Unclassified {
			t.Errorf("Once() = %v, %v", ran, err)
		}
		if n := db.Effects(); n != 0 {
			t.Errorf("%d effects", n)
		}
		if ran, err := store.Once(t.Context(), key("e"), writes("again")); !ran || err != nil {
			t.Errorf("the next call: %v, %v", ran, err)
		}
	})
}

// A call whose context has a deadline returns with it, also while it waits for a key.
func TestDeadlineWhileWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		db, pool := open(t, driver, nil)
		store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{LockTimeout: time.Minute})
		_, err := store.Once(t.Context(), key("held"), func(context.Context, *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			ran, err := store.Once(ctx, key("held"), writes("second"))
			if ran || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Once() = %v, %v", ran, err)
			}
			return nil
		})
		if err != nil || db.Effects() != 0 {
			t.Errorf("the holder: %v, %d effects", err, db.Effects())
		}
	})
}

// A session on a server that has become a replica is given up.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		_, pool := open(t, driver, nil)
		pool.SetMaxOpenConns(1)
		store := sqlstore.New(pool, schema.Postgres, nil)
		if err := store.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.ExecContext(t.Context(), "set default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
		_, err := store.Once(t.Context(), key("e"), writes("e"))
		if err == nil || !strings.Contains(err.Error(), "read-only") || dedupstore.ClassOf(err) != dedupstore.Unavailable {
			t.Errorf("Once: %v", err)
		}
		if ran, err := store.Once(t.Context(), key("e"), writes("e")); !ran || err != nil {
			t.Errorf("the next call has another session: Once() = %v, %v", ran, err)
		}
	})
}

// Rows that are left open are a fault of the function, and do no harm beyond it.
func TestFunctionLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		db, pool := open(t, driver, nil)
		pool.SetMaxOpenConns(1)
		store := sqlstore.New(pool, schema.Postgres, nil)
		ran, err := store.Once(t.Context(), key("rows"), func(ctx context.Context, tx *sql.Tx) error {
			if err := writes("rows")(ctx, tx); err != nil {
				return err
			}
			_, err := tx.QueryContext(ctx, "select generate_series(1, 100000)") //nolint:sqlclosecheck,rowserrcheck // that is the mistake
			return err
		})
		if ran || err == nil {
			t.Errorf("Once() = %v, %v", ran, err)
		}
		if n := db.Effects(); n != 0 {
			t.Errorf("%d effects", n)
		}
		if ran, err := store.Once(t.Context(), key("rows"), writes("rows")); !ran || err != nil {
			t.Errorf("the next call: %v, %v", ran, err)
		}
	})
}

// A function that ends the transaction and fails afterwards has not simply failed: the next attempt would find its
// record.
func TestEndedAndFailed(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	each(t, func(t *testing.T, driver sqltest.Driver) {
		_, pool := open(t, driver, nil)
		for name, end := range map[string]func(ctx context.Context, tx *sql.Tx) error{
			"Commit":           func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			"COMMIT":           text("commit"),
			"COMMIT AND CHAIN": text("commit and chain"),
			"COMMIT and BEGIN": func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(text("commit")(ctx, tx), text("begin")(ctx, tx))
			},
		} {
			_, err := sqlstore.New(pool, schema.Postgres, nil).Once(t.Context(), key(name),
				func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(end(ctx, tx), own)
				})
			if !errors.Is(err, dedupstore.ErrTxEnded) || !errors.Is(err, own) ||
				dedupstore.ClassOf(err) != dedupstore.Permanent {
				t.Errorf("%s: %v, want both errors", name, err)
			}
		}
	})
}

func text(s string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s)
		return err
	}
}

// Calls wait for each other, leave one connection to the rest of the service, and say so once.
func TestTransactionsLeaveAConnection(t *testing.T) {
	t.Parallel()
	_, pool := open(t, cached, nil)
	pool.SetMaxOpenConns(4)
	var log bytes.Buffer
	store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	inside, release := make(chan struct{}, 16), make(chan struct{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if ran, err := store.Once(context.Background(), key(fmt.Sprint(i)), func(context.Context, *sql.Tx) error {
				inside <- struct{}{}
				<-release
				return nil
			}); !ran || err != nil {
				t.Errorf("Once() = %v, %v", ran, err)
			}
		})
	}
	for range 3 {
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pool.PingContext(ctx); err != nil {
		t.Errorf("the rest of the service finds no connection: %v", err)
	}
	if len(inside) != 0 {
		t.Errorf("%d more transactions run than a pool of 4 leaves", len(inside))
	}
	close(release)
	all.Wait()
	if n := strings.Count(log.String(), "transactions wait"); n != 1 {
		t.Errorf("warned %d times: %s", n, log.String())
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	for says, store := range map[string]*sqlstore.Store{
		"the database is nil":        sqlstore.New(nil, schema.Postgres, nil),
		`dialect "oracle"`:           sqlstore.New(f.DB, "oracle", nil),
		"SQLite has no schemas":      sqlstore.New(f.DB, schema.SQLite, &sqlstore.Config{Schema: "s"}),
		"Config.LockTimeout: -1":     sqlstore.New(f.DB, schema.Postgres, &sqlstore.Config{LockTimeout: -1}),
		"Config.Table: 64 bytes":     sqlstore.New(f.DB, schema.Postgres, &sqlstore.Config{Table: strings.Repeat("x", 64)}),
		"Config.Schema: some driver": sqlstore.New(f.DB, schema.Postgres, &sqlstore.Config{Schema: "a$1"}),
		"open the database: check ":  sqlstore.New(unopenable(t), schema.SQLite, nil),
	} {
		_, onceErr := store.Once(t.Context(), key("e"), writes("e"))
		for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
	}
}

func unopenable(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/none/db?mode=ro&_pragma=busy_timeout(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A COMMIT that gets no answer is given up at CommitTimeout, whatever the driver does with it. Its connection and its
// place are free again when the driver lets go.
func TestCommitTimeout(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, driver sqltest.Driver) {
		dialer := &faultconn.Dialer{}
		db, pool := open(t, driver, dialer)
		pool.SetMaxOpenConns(1)
		store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{CommitTimeout: 300 * time.Millisecond})
		if err := store.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		dialer.Break(faultconn.CommitHangs)
		begin := time.Now()
		ran, err := store.Once(t.Context(), key("e"), writes("e"))
		if took := time.Since(begin); ran || !errors.Is(err, dedupstore.ErrOutcomeUnknown) || took > 20*time.Second {
			t.Errorf("Once() = %v, %v after %v", ran, err, took)
		}
		if ran, err := store.Once(t.Context(), key("e"), writes("e")); ran || err != nil || db.Effects() != 1 {
			t.Errorf("the next call: %v, %v, %d effects", ran, err, db.Effects())
		}
	})
}

// What a function leaves in its session does not reach the next one, by any driver, with or without a pooler.
func TestSessionIsNotHandedOn(t *testing.T) {
	t.Parallel()
	for _, driver := range []sqltest.Driver{sqltest.Pgx(pgx.QueryExecModeExec), sqltest.Pgdriver} {
		for name, pooler := range map[string]string{"": "", ", pooler": serverstest.PoolerURL(t)} {
			t.Run(driver.Name+name, func(t *testing.T) {
				t.Parallel()
				sqltest.SessionIsNotHandedOn(t, driver, kind(schema.Postgres), pooler)
			})
		}
	}
}

// No function runs in a session that somebody else has changed, by any driver, with or without a pooler.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for _, driver := range []sqltest.Driver{sqltest.Pgx(pgx.QueryExecModeExec), sqltest.Pgdriver} {
		for name, pooler := range map[string]string{"": "", ", pooler": serverstest.PoolerURL(t)} {
			t.Run(driver.Name+name, func(t *testing.T) {
				t.Parallel()
				sqltest.SessionThatOthersHaveChanged(t, driver, kind(schema.Postgres), pooler)
			})
		}
	}
}

// The functions of a group do not see what the ones before them have set.
func TestSessionIsNotHandedOnInAGroup(t *testing.T) {
	t.Parallel()
	db, pool := open(t, cached, nil)
	pool.SetMaxOpenConns(1)
	store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{Group: 10})
	role := db.Role()
	once := func(event string, fn func(context.Context, *sql.Tx) error) (bool, error) {
		return store.Once(t.Context(), key(event), fn)
	}
	for _, set := range append(pgtest.Left(role), "set local role "+role) {
		if strings.Contains(set, ";") {
			continue // the driver takes one statement
		}
		pgtest.SessionInAGroup(t, once, func() int { return sqlstore.Waiting(store) }, set, text,
			func(into *string) func(context.Context, *sql.Tx) error {
				return func(ctx context.Context, tx *sql.Tx) error {
					return tx.QueryRowContext(ctx, pgtest.SessionSQL).Scan(into)
				}
			})
	}
}

// A session in which something is wrong costs one attempt, not all that come after it, behind a pooler too, which keeps
// its own connection unless it is told otherwise.
func TestSpoiledSessionIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, pooler := range map[string]string{"direct": "", "pooler": serverstest.PoolerURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.OpenAlone(t, pgtest.Plain)
			url := db.URL
			if pooler != "" {
				url = db.Behind(pooler)
			}
			pool := sqltest.Pgx(pgx.QueryExecModeExec).Open(t, url, nil)
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(1)
			store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{Schema: db.Schema})
			if err := store.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.ExecContext(t.Context(), "set role "+db.Role()); err != nil { // by somebody who is not the store
				t.Fatal(err)
			}
			fn := func(context.Context, *sql.Tx) error { return nil }
			if _, err := store.Once(t.Context(), key("e"), fn); dedupstore.ClassOf(err) != dedupstore.Misconfigured {
				t.Errorf("Once: %v, class %v", err, dedupstore.ClassOf(err))
			}
			if ran, err := store.Once(t.Context(), key("e"), fn); !ran || err != nil {
				t.Errorf("the next attempt: Once() = %v, %v", ran, err)
			}
		})
	}
}
