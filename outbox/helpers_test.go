package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/bunoutbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is a schema with the tables in it.
type fixture struct {
	*pgxpool.Pool
	url string
	t   testing.TB
}

func open(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{url: serverstest.DatabaseURL(t), t: t}
	pool, err := pgxpool.New(context.Background(), f.url)
	must(t, err)
	t.Cleanup(pool.Close)
	f.Pool = pool
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil, schema.Outbox))
	return f
}

// value returns the one value that a query selects.
func value[T any](f *fixture, sql string, args ...any) T {
	f.t.Helper()
	rows, err := f.Query(f.t.Context(), sql, args...)
	must(f.t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		f.t.Fatalf("%.100s: %v", sql, err)
	}
	return v
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.Exec(f.t.Context(), sql, args...)
	if err != nil {
		f.t.Fatalf("%.100s: %v", sql, err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 60 s: %s", what)
		}
	}
}

// driver is a way to the database.
type driver struct {
	name string
	// open returns what writes events in a transaction, which it commits unless after returns an error; and the relay's Database.
	open func(t testing.TB, url string, cfg *outbox.WriterConfig) (write, outbox.Database)
}

// write writes events in a transaction, calls after, and commits it unless one of them fails.
type write func(ctx context.Context, after func() error, events ...outbox.Event) error

var drivers = []driver{
	{"pgx", func(t testing.TB, url string, cfg *outbox.WriterConfig) (write, outbox.Database) {
		pool, err := pgxpool.New(t.Context(), url)
		must(t, err)
		t.Cleanup(pool.Close)
		w := pgxoutbox.NewWriter(cfg)
		return func(ctx context.Context, after func() error, events ...outbox.Event) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := w.Write(ctx, tx, events...); err != nil {
					return err
				}
				return after()
			})
		}, pgxoutbox.NewDatabase(pool)
	}},
	{"sql, pgx", func(t testing.TB, url string, cfg *outbox.WriterConfig) (write, outbox.Database) {
		return onSQL(t, stdlibDB(t, url), cfg)
	}},
	{"sql, pgdriver", func(t testing.TB, url string, cfg *outbox.WriterConfig) (write, outbox.Database) {
		return onSQL(t, sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url))), cfg)
	}},
	{"bun", func(t testing.TB, url string, cfg *outbox.WriterConfig) (write, outbox.Database) {
		db := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url))), pgdialect.New())
		t.Cleanup(func() { _ = db.Close() })
		w := bunoutbox.NewWriter(cfg)
		return func(ctx context.Context, after func() error, events ...outbox.Event) error {
			return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if err := w.Write(ctx, tx, events...); err != nil {
					return err
				}
				return after()
			})
		}, sqloutbox.NewDatabase(db.DB)
	}},
}

func stdlibDB(t testing.TB, url string) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	must(t, err)
	return stdlib.OpenDB(*cfg)
}

func onSQL(t testing.TB, db *sql.DB, cfg *outbox.WriterConfig) (write, outbox.Database) {
	t.Cleanup(func() { _ = db.Close() })
	w := sqloutbox.NewWriter(cfg)
	return func(ctx context.Context, after func() error, events ...outbox.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := w.Write(ctx, tx, events...); err != nil {
			return err
		}
		if err := after(); err != nil {
			return err
		}
		return tx.Commit()
	}, sqloutbox.NewDatabase(db)
}

func commit() error { return nil }
