package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

// Every mode of pgx.
func TestStore(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] { return harness(open(t), mode) })
		})
	}
}

// Calls that share transactions keep the contract, in every form, and in the modes that differ in what they send:
// statements that are prepared, are not, or have the values in them.
func TestStoreWithGroups(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] { return grouped(open(t), mode) })
		})
	}
	for _, layout := range []pgtest.Layout{pgtest.Renamed, pgtest.Cheap, pgtest.ByHash, pgtest.ByRange} {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
				return grouped(use(t, pgtest.Open(t, layout)), pgx.QueryExecModeCacheStatement)
			})
		})
	}
}

// Every way in which the table can stand there, and PostgreSQL 17.
func TestStoreLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []pgtest.Layout{pgtest.Renamed, pgtest.Cheap, pgtest.ByHash, pgtest.ByRange} {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
				return harness(use(t, pgtest.Open(t, layout)), pgx.QueryExecModeCacheStatement)
			})
		})
	}
	for _, layout := range []pgtest.Layout{pgtest.Plain, pgtest.ByRange} {
		t.Run("17 "+layout.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
				return harness(use(t, pgtest.OpenAt(t, serverstest.DatabaseURL17(t), layout)), pgx.QueryExecModeCacheStatement)
			})
		})
	}
}

// A role that has the privileges of docs/security.md and no others, but for the one that Forget takes, which is for
// whoever redrives.
func TestStoreWithLeastPrivileges(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
		db := use(t, pgtest.Open(t, pgtest.Plain))
		db.exec(schema.Postgres.SQL(nil, schema.DeadLetter, schema.CrashLoop)) // of which the page tells too
		db.via = rolestest.New(t, db.Pool, "consumer", "grant insert on effect to %s",
			"grant delete on processed_event to %s").URL
		return harness(db, pgx.QueryExecModeCacheStatement)
	})
}

// The modes that work behind a pooler which hands out sessions by transaction.
func TestStoreBehindPgbouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
				db := use(t, pgtest.Open(t, pgtest.Plain))
				db.via = db.Behind(serverstest.PoolerURL(t))
				db.Layout.Schema = db.Schema
				return harness(db, mode)
			})
		})
	}
}

func harness(db *database, mode pgx.QueryExecMode) storetest.Harness[pgx.Tx] {
	return harnessOf(db, mode, 0)
}

func grouped(db *database, mode pgx.QueryExecMode) storetest.Harness[pgx.Tx] {
	h := harnessOf(db, mode, 50)
	h.Waiting = nil // calls wait for each other in the process
	return h
}

func harnessOf(db *database, mode pgx.QueryExecMode, group int) storetest.Harness[pgx.Tx] {
	return harnessFor(db, mode, group, func(pool *pgxpool.Pool, cfg *pgxstore.Config) dedupstore.Store[pgx.Tx] {
		return pgxstore.New(pool, cfg)
	})
}

// harnessFor is a harness for stores that newStore makes.
func harnessFor(
	db *database, mode pgx.QueryExecMode, group int,
	newStore func(*pgxpool.Pool, *pgxstore.Config) dedupstore.Store[pgx.Tx],
) storetest.Harness[pgx.Tx] {
	store := func(cfg pgxstore.Config) dedupstore.Store[pgx.Tx] {
		cfg.Group = group
		return newStore(db.pool(inMode(mode)), db.config(cfg))
	}
	insert := "insert into " + db.EffectTable() + " (name) values ($1)"
	return storetest.Harness[pgx.Tx]{
		Store: store(pgxstore.Config{}),
		Write: func(ctx context.Context, tx pgx.Tx, effect string) error {
			_, err := tx.Exec(ctx, insert, effect)
			return err
		},
		Effects: db.EffectsOf,
		Other:   store(pgxstore.Config{}),
		Waiting: db.Waiting,
		Spoil: map[string]func(context.Context, pgx.Tx) error{
			"statement fails": exec("select 1/0"),
			"connection lost": exec(killSession),
		},
		Lose: exec(killSession),
		End: map[string]func(context.Context, pgx.Tx) error{
			"Commit":                         func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
			"Rollback":                       func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
			"COMMIT text":                    exec("commit"),
			"ROLLBACK text":                  exec("rollback"),
			"COMMIT and BEGIN as one text":   exec("commit; begin"),
			"ROLLBACK and BEGIN as one text": exec("rollback; begin"),
			"COMMIT AND CHAIN":               exec("commit and chain"),
			"on the Conn": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Conn().Exec(ctx, "commit")
				return err
			},
		},
		Cut: func(_ testing.TB, at storetest.Moment) dedupstore.Store[pgx.Tx] {
			pool, dialer := db.faulty(inMode(mode))
			dialer.Break(faultconn.Moment(at))
			return newStore(pool, db.config(pgxstore.Config{CommitTimeout: time.Second}))
		},
		Impatient: store(pgxstore.Config{IdleTimeout: 300 * time.Millisecond}),
		Brief:     store(pgxstore.Config{LockTimeout: 100 * time.Millisecond}),
		Hasty:     store(pgxstore.Config{CommitTimeout: time.Millisecond}),
	}
}

const killSession = "select pg_terminate_backend(pg_backend_pid())"

func exec(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}
