package losttest

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/internal/rowtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/schema"
)

// kind is a store with a driver.
type kind struct {
	name string
	open func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store
	// looks: after the function, a round trip asks the server how the transaction is.
	looks bool
	// watches: it sees the warning that COMMIT was cancelled while it waited for a replica.
	watches bool
}

var kinds = []kind{
	{name: "pgxstore", watches: true, open: openPgx},
	{name: "sqlstore, pgx", looks: true, open: func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
		return onSQL(sqlstore.New(withPgx(t, url, pgx.QueryExecModeCacheStatement, poolSize), schema.Postgres, &cfg), sqlOf)
	}},
	{name: "bunstore, pgx", looks: true, open: func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
		return onSQL(bunstore.New(bun.NewDB(withPgx(t, url, pgx.QueryExecModeExec, poolSize), pgdialect.New()), &cfg), bunOf)
	}},
	{name: "bunstore, pgdriver", looks: true,
		open: func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
			return onSQL(bunstore.New(bun.NewDB(withPgdriver(t, url, poolSize), pgdialect.New()), &cfg), bunOf)
		}},
}

// grouped are kinds whose calls share transactions, for loads that have many at once.
var grouped = []kind{
	inGroups(kinds[0]), inGroups(kinds[1]),
	inGroups(kind{name: "pgxstore, rows", watches: true,
		open: func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
			full := pgxstore.Config(cfg)
			rows := pgxstore.NewRows(openPool(t, url, poolSize), &full, rowtest.Flush[pgx.Tx])
			return newStore(checked[pgx.Tx]{rowtest.Store(rows), rows}, execInPgx)
		}}),
}

func inGroups(k kind) kind {
	open := k.open
	k.name += ", groups"
	k.open = func(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
		t.Helper()
		cfg.Group = workers
		return open(t, url, poolSize, cfg)
	}
	return k
}

// checked is a store that somebody else checks.
type checked[Tx any] struct {
	dedupstore.Store[Tx]
	dedupstore.Checker
}

// store is a store of any kind, as the tests see it.
type store struct {
	once  func(ctx context.Context, key dedupstore.Key, f function) (ran bool, err error)
	check func(ctx context.Context) error
}

// function is what runs in a transaction. exec runs a statement in it.
type function func(ctx context.Context, exec exec) error

type exec func(ctx context.Context, sql string, args ...any) error

type checkedStore[Tx any] interface {
	dedupstore.Store[Tx]
	dedupstore.Checker
}

func newStore[Tx any](s checkedStore[Tx], execIn func(tx Tx) exec) *store {
	return &store{
		check: s.Check,
		once: func(ctx context.Context, key dedupstore.Key, f function) (bool, error) {
			return s.Once(ctx, key, func(ctx context.Context, tx Tx) error { return f(ctx, execIn(tx)) })
		},
	}
}

func onSQL[Tx any](s checkedStore[Tx], sqlOf func(tx Tx) *sql.Tx) *store {
	return newStore(s, func(tx Tx) exec {
		return func(ctx context.Context, text string, args ...any) error {
			_, err := sqlOf(tx).ExecContext(ctx, text, args...)
			return err
		}
	})
}

func sqlOf(tx *sql.Tx) *sql.Tx { return tx }
func bunOf(tx bun.Tx) *sql.Tx  { return tx.Tx }

func openPgx(t testing.TB, url string, poolSize int, cfg sqlstore.Config) *store {
	t.Helper()
	full := pgxstore.Config(cfg)
	return newStore(pgxstore.New(openPool(t, url, poolSize), &full), execInPgx)
}

func execInPgx(tx pgx.Tx) exec {
	return func(ctx context.Context, text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	}
}

func openPool(t testing.TB, url string, poolSize int) *pgxpool.Pool {
	t.Helper()
	conf, err := pgxpool.ParseConfig(url)
	must(t, err)
	conf.MaxConns = int32(poolSize)
	pgxstore.WatchCommits(conf.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func withPgx(t testing.TB, url string, mode pgx.QueryExecMode, poolSize int) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	must(t, err)
	cfg.DefaultQueryExecMode = mode
	return sized(t, stdlib.OpenDB(*cfg), poolSize)
}

func sized(t testing.TB, db *sql.DB, poolSize int) *sql.DB {
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// withPgdriver connects to the first of the URL's hosts that takes a connection, which is all that this driver leaves
// to do about several: it does not ask whether that one is the primary.
func withPgdriver(t testing.TB, dsn string, poolSize int) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	hosts := strings.Split(u.Host, ",")
	u.Host = hosts[0]
	q := u.Query()
	q.Del("target_session_attrs")
	u.RawQuery = q.Encode()
	connector := pgdriver.NewConnector(
		pgdriver.WithDSN(u.String()),
		pgdriver.WithReadTimeout(3*time.Second), // it gives COMMIT no other deadline
		func(cfg *pgdriver.Config) {
			cfg.Dialer = func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
				for _, host := range hosts {
					d := net.Dialer{Timeout: 5 * time.Second}
					if conn, err = d.DialContext(ctx, network, host); err == nil {
						return conn, nil
					}
				}
				return nil, err
			}
		})
	return sized(t, sql.OpenDB(connector), poolSize)
}
