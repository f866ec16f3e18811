// Package tabletest has the outbox's tables in a schema of a test's own, and each driver's way to them. It is for the
// tests of outbox and of its relay.
package tabletest

import (
	"context"
	"database/sql"
	"testing"

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

// Fixture is a schema with the tables in it.
type Fixture struct {
	*pgxpool.Pool
	URL string
	T   testing.TB
}

// Open makes a schema with the tables, which goes with the test.
func Open(t testing.TB) *Fixture {
	t.Helper()
	f := &Fixture{URL: serverstest.DatabaseURL(t), T: t}
	pool, err := pgxpool.New(context.Background(), f.URL)
	must(t, err)
	t.Cleanup(pool.Close)
	f.Pool = pool
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil, schema.Outbox))
	return f
}

// Value returns the one value that a query selects.
func Value[T any](f *Fixture, sql string, args ...any) T {
	f.T.Helper()
	rows, err := f.Query(f.T.Context(), sql, args...)
	must(f.T, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		f.T.Fatalf("%.100s: %v", sql, err)
	}
	return v
}

// MustExec runs a statement.
func (f *Fixture) MustExec(sql string, args ...any) {
	f.T.Helper()
	_, err := f.Exec(f.T.Context(), sql, args...)
	if err != nil {
		f.T.Fatalf("%.100s: %v", sql, err)
	}
}

// Driver is a way to the database.
type Driver struct {
	Name string
	// Open returns what writes events, and the Database of relays and operators.
	Open func(t testing.TB, url string, cfg *outbox.WriterConfig) (Write, outbox.Database)
}

// Write writes events in a transaction, calls after, and commits it unless one of them fails.
type Write func(ctx context.Context, after func() error, events ...outbox.Event) error

// Drivers are all of them; the first one is pgx.
var Drivers = []Driver{
	{"pgx", func(t testing.TB, url string, cfg *outbox.WriterConfig) (Write, outbox.Database) {
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
	{"sql, pgx", func(t testing.TB, url string, cfg *outbox.WriterConfig) (Write, outbox.Database) {
		return onSQL(t, StdlibDB(t, url), cfg)
	}},
	{"sql, pgdriver", func(t testing.TB, url string, cfg *outbox.WriterConfig) (Write, outbox.Database) {
		return onSQL(t, sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url))), cfg)
	}},
	{"bun", func(t testing.TB, url string, cfg *outbox.WriterConfig) (Write, outbox.Database) {
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

// StdlibDB is the pgx driver as a *sql.DB.
func StdlibDB(t testing.TB, url string) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	must(t, err)
	return stdlib.OpenDB(*cfg)
}

func onSQL(t testing.TB, db *sql.DB, cfg *outbox.WriterConfig) (Write, outbox.Database) {
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

// Commit is what a Write calls after it to have its transaction committed.
func Commit() error { return nil }
