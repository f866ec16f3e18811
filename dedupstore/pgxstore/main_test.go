package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// database is a schema of one test's own.
type database struct {
	t   testing.TB
	url string
	*pgxpool.Pool
}

// open creates the store's table, and one for effects.
func open(t testing.TB) *database {
	t.Helper()
	db := openEmpty(t)
	apply(t, db.Pool, nil)
	db.exec("create table effect (name text not null)")
	return db
}

func openEmpty(t testing.TB) *database {
	t.Helper()
	db := &database{t: t, url: serverstest.DatabaseURL(t)}
	db.Pool = db.pool(nil)
	return db
}

func apply(t testing.TB, pool *pgxpool.Pool, cfg *schema.Config) {
	t.Helper()
	err := schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
}

// pool opens another pool on the database. It is closed when the test ends.
func (db *database) pool(change func(*pgxpool.Config)) *pgxpool.Pool {
	db.t.Helper()
	cfg, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		db.t.Fatal(err)
	}
	cfg.MaxConns = 8
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(pool.Close)
	return pool
}

// faulty opens a pool of connections that can be broken and counted.
func (db *database) faulty(change func(*pgxpool.Config)) (*pgxpool.Pool, *faultconn.Dialer) {
	db.t.Helper()
	dialer := &faultconn.Dialer{}
	return db.pool(func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DialFunc = dialer.DialContext
		if change != nil {
			change(cfg)
		}
	}), dialer
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
}

func (db *database) exec(sql string) {
	db.t.Helper()
	if _, err := db.Exec(db.t.Context(), sql); err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
}

// value returns the only value that a query selects.
func value[T any](db *database, sql string, args ...any) T {
	db.t.Helper()
	rows, _ := db.Query(db.t.Context(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
	return v
}

func (db *database) effects() int {
	db.t.Helper()
	return value[int](db, "select count(*) from effect")
}

func write(ctx context.Context, tx pgx.Tx, effect string) error {
	_, err := tx.Exec(ctx, "insert into effect (name) values ($1)", effect)
	return err
}

func writes(effect string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, effect) }
}

func key(event string) dedupstore.Key { return dedupstore.Key{Consumer: "test/consumer", Event: event} }

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
