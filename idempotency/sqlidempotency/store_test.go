package sqlidempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/driver/pgdriver"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/sqlidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	for name, connect := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idempotencytest.Run(t, func(t testing.TB) idempotencytest.Harness[*sql.Tx] {
				url := serverstest.DatabaseURL(t)
				open := func() *sql.DB { return connect(t, url) }
				return harness(t, schema.Postgres, open)
			})
		})
	}
}

// A function that ends the transaction by SQL of its own is told so, and no answer is kept for what may have been
// rolled back.
func TestTransactionEndedBySQL(t *testing.T) {
	t.Parallel()
	harnesses := map[string]idempotencytest.Harness[*sql.Tx]{"sqlite": sqlite(t)}
	for name, connect := range drivers {
		url := serverstest.DatabaseURL(t)
		harnesses[name] = harness(t, schema.Postgres, func() *sql.DB { return connect(t, url) })
	}
	for name, h := range harnesses {
		for _, text := range []string{"commit", "rollback"} {
			req := idempotency.Request{Key: text, Keep: time.Hour}
			for range 2 {
				_, replayed, err := h.Store.Once(t.Context(), req, func(ctx context.Context, tx *sql.Tx) (idempotency.Answer,
					error) {
					_, err := tx.ExecContext(ctx, text)
					return idempotency.Answer{Status: 200}, err
				})
				if replayed || !errors.Is(err, dedupstore.ErrTxEnded) {
					t.Errorf("%s, %s: replayed %v, %v", name, text, replayed, err)
				}
			}
		}
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	idempotencytest.Run(t, sqlite)
}

func sqlite(t testing.TB) idempotencytest.Harness[*sql.Tx] {
	t.Helper()
	dsn := "file:" + t.TempDir() + "/db?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"
	h := harness(t, schema.SQLite, func() *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		return db
	})
	h.Waits, h.FailureStays = true, true
	return h
}

var drivers = map[string]func(t testing.TB, url string) *sql.DB{
	"pgx": func(t testing.TB, url string) *sql.DB {
		t.Helper()
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		return stdlib.OpenDB(*cfg)
	},
	"pgdriver": func(_ testing.TB, url string) *sql.DB {
		return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url)))
	},
}

func harness(t testing.TB, dialect schema.Dialect, open func() *sql.DB) idempotencytest.Harness[*sql.Tx] {
	t.Helper()
	db, other := open(), open()
	for _, pool := range []*sql.DB{db, other} {
		pool.SetMaxOpenConns(8)
		t.Cleanup(func() { _ = pool.Close() })
	}
	for _, text := range []string{dialect.SQL(nil, schema.Idempotency), "create table effect (name text not null)"} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	cfg := &sqlidempotency.Config{}
	if dialect == schema.SQLite {
		cfg.CommitTimeout = 2 * 60e9
	}
	return idempotencytest.Harness[*sql.Tx]{
		Store: sqlidempotency.New(db, dialect, cfg),
		Other: sqlidempotency.New(other, dialect, cfg),
		Write: func(ctx context.Context, tx *sql.Tx, effect string) error {
			_, err := tx.ExecContext(ctx, "insert into effect values ($1)", effect)
			return err
		},
		Effects: func(ctx context.Context, effect string) (n int, err error) {
			err = db.QueryRowContext(ctx, "select count(*) from effect where name = $1", effect).Scan(&n)
			return n, err
		},
		Fail: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into effect values (null)")
			return err
		},
		End: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
	}
}
