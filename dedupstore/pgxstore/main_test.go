package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// database is a schema of one test's own, and ways to it.
type database struct {
	*pgtest.Database
	t   testing.TB
	via string // the URL of the pools that are opened
}

// open creates the store's table, and one for effects.
func open(t testing.TB) *database {
	t.Helper()
	return use(t, pgtest.Open(t, pgtest.Plain))
}

func openEmpty(t testing.TB) *database {
	t.Helper()
	return use(t, pgtest.OpenEmpty(t, serverstest.DatabaseURL(t)))
}

func use(t testing.TB, db *pgtest.Database) *database { return &database{db, t, db.URL} }

// pool opens another pool on the database. It is closed when the test ends.
func (db *database) pool(change func(*pgxpool.Config)) *pgxpool.Pool {
	db.t.Helper()
	cfg, err := pgxpool.ParseConfig(db.via)
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

// config is that of a store for the layout of the database, with what cfg has beside it.
func (db *database) config(cfg pgxstore.Config) *pgxstore.Config {
	cfg.Schema, cfg.Table, cfg.DoNothing = db.Layout.Schema, db.Layout.Table, db.Layout.DoNothing
	return &cfg
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
}

// as has each connection take a role.
func as(role string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "set role "+role)
			return err
		}
	}
}

// drop drops a role and what it may do, at the end of the test.
func (db *database) drop(role string) {
	if _, err := db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
		db.t.Error(err)
	}
}

func (db *database) exec(sql string) {
	db.t.Helper()
	db.Run(sql)
}

// value returns the only value that a query selects.
func value[T any](db *database, sql string, args ...any) T {
	db.t.Helper()
	return pgtest.Value[T](db.Database, sql, args...)
}

func write(ctx context.Context, tx pgx.Tx, effect string) error {
	_, err := tx.Exec(ctx, "insert into effect (name) values ($1)", effect)
	return err
}

func writes(effect string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, effect) }
}

func key(event string) dedupstore.Key { return dedupstore.Key{Consumer: "test/consumer", Event: event} }
