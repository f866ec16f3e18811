// Package sqltest is what the tests of the stores on database/sql share: their harnesses for storetest, on PostgreSQL
// by each driver, and on SQLite.
package sqltest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

// Kind is a kind of store.
type Kind[Tx any] struct {
	New func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[Tx]
	SQL func(tx Tx) *sql.Tx
	End func(tx Tx) (commit, rollback func() error)
}

// Postgres is a harness on a database that is reached through url by one of the drivers.
func Postgres[Tx any](t testing.TB, db *pgtest.Database, url string, driver Driver,
	kind Kind[Tx]) storetest.Harness[Tx] {
	t.Helper()
	open := func(dialer *faultconn.Dialer) *sql.DB {
		pool := driver.Open(t, url, dialer)
		pool.SetMaxOpenConns(8)
		pool.SetMaxIdleConns(8)
		t.Cleanup(func() { _ = pool.Close() })
		return pool
	}
	store := func(cfg sqlstore.Config) dedupstore.Store[Tx] {
		cfg.Schema, cfg.Table, cfg.DoNothing = db.Layout.Schema, db.Layout.Table, db.Layout.DoNothing
		return kind.New(open(nil), &cfg)
	}
	h := kind.harness("insert into " + db.EffectTable() + " (name) values ($1)")
	h.Store, h.Other = store(sqlstore.Config{}), store(sqlstore.Config{})
	h.Effects, h.Waiting = db.EffectsOf, db.Waiting
	h.Lose = kind.exec("select pg_terminate_backend(pg_backend_pid())")
	h.Spoil = map[string]func(context.Context, Tx) error{"statement fails": kind.exec("select 1/0"),
		"connection lost": h.Lose}
	h.Cut = func(_ testing.TB, at storetest.Moment) dedupstore.Store[Tx] {
		dialer := &faultconn.Dialer{}
		dialer.Break(faultconn.Moment(at)) //nolint:gosec // the same three moments
		cfg := &sqlstore.Config{CommitTimeout: time.Second, Schema: db.Layout.Schema, Table: db.Layout.Table,
			DoNothing: db.Layout.DoNothing}
		return kind.New(open(dialer), cfg)
	}
	h.Impatient = store(sqlstore.Config{IdleTimeout: 300 * time.Millisecond})
	h.Brief = store(sqlstore.Config{LockTimeout: 100 * time.Millisecond})
	h.Hasty = store(sqlstore.Config{CommitTimeout: time.Millisecond})
	return h
}

// harness has what does not depend on the database.
func (k Kind[Tx]) harness(insert string) storetest.Harness[Tx] {
	return storetest.Harness[Tx]{
		Write: func(ctx context.Context, tx Tx, effect string) error {
			_, err := k.SQL(tx).ExecContext(ctx, insert, effect)
			return err
		},
		End: map[string]func(context.Context, Tx) error{
			"Commit": func(_ context.Context, tx Tx) error {
				commit, _ := k.End(tx)
				return commit()
			},
			"Rollback": func(_ context.Context, tx Tx) error {
				_, rollback := k.End(tx)
				return rollback()
			},
			"COMMIT text":                    k.exec("commit"),
			"ROLLBACK text":                  k.exec("rollback"),
			"COMMIT and BEGIN as one text":   k.exec("commit; begin"),
			"ROLLBACK and BEGIN as one text": k.exec("rollback; begin"),
		},
	}
}

func (k Kind[Tx]) exec(text string) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		_, err := k.SQL(tx).ExecContext(ctx, text)
		return err
	}
}
