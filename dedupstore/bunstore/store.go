package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltx"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/bundriver"
	"github.com/einmal-go/einmal/schema"
)

// Store records keys in a table of a database. It is safe for concurrent use.
type Store struct{ store *sqltx.Store[bun.Tx] }

var (
	_ dedupstore.Store[bun.Tx]     = (*Store)(nil)
	_ dedupstore.Forgetter[bun.Tx] = (*Store)(nil)
	_ dedupstore.Checker           = (*Store)(nil)
)

// New returns a Store on db, which stays the caller's to close, after the last Once has returned. A nil cfg is all
// defaults. New does no input or output. What is wrong with its arguments is the error of Check, and of every Once.
func New(db *bun.DB, cfg *sqlstore.Config) *Store {
	if cfg == nil {
		cfg = &sqlstore.Config{}
	}
	full := record.Config(*cfg).WithDefaults()
	driver := sqltx.Driver[bun.Tx]{
		Conn: func(ctx context.Context) (*sql.Conn, sqltx.Begin[bun.Tx], error) {
			conn, err := db.Conn(ctx)
			return conn.Conn, conn.BeginTx, err
		},
		SQL: func(tx bun.Tx) *sql.Tx { return tx.Tx },
	}
	name := schema.Postgres
	var invalid error
	if db == nil {
		invalid = errors.New("the database is nil: make one with bun.NewDB")
	} else {
		driver.DB = db.DB
		name, invalid = dialectOf(db)
	}
	if name == schema.Postgres {
		driver.Check = func(ctx context.Context, ask record.Query) error {
			return bundriver.PreparesNothing(ctx, "bunstore", ask)
		}
	}
	driver, texts, unknown := sqltx.ForDialect(driver, "bunstore", name, full)
	return &Store{sqltx.New(driver, texts, full, errors.Join(invalid, unknown, full.Validate()))}
}

func dialectOf(db *bun.DB) (schema.Dialect, error) {
	switch name := db.Dialect().Name(); name {
	case dialect.PG:
		return schema.Postgres, nil
	case dialect.SQLite:
		return schema.SQLite, nil
	default:
		return schema.Postgres, fmt.Errorf("bun's dialect %v is not supported: use pgdialect or sqlitedialect", name)
	}
}

// Once implements dedupstore.Store. At most one less than the pool's MaxOpenConns run at once, if that is set, so that
// the rest of the service finds a connection; the others wait.
func (s *Store) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx bun.Tx) error) (ran bool,
	err error) {
	return s.store.Once(ctx, key, fn)
}

// InTx implements dedupstore.Transactor.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	return s.store.InTx(ctx, fn)
}

// Forget implements dedupstore.Forgetter. It needs the privilege to delete, which nothing else in the store does.
func (s *Store) Forget(ctx context.Context, tx bun.Tx, key dedupstore.Key) error {
	return s.store.Forget(ctx, tx, key)
}

// Check implements dedupstore.Checker: it reports everything that would make Once fail, with the SQL to run, and a
// driver that prepares what bun gives it. It connects, looks at the table, and records a key of its own in a
// transaction that it rolls back.
func (s *Store) Check(ctx context.Context) error { return s.store.Check(ctx) }

// IdleTimeout is Config.IdleTimeout, for who compares it with other times, and 0 on SQLite, which has nothing like it.
func (s *Store) IdleTimeout() time.Duration { return s.store.IdleTimeout() }

// Identity implements dedupstore.Identifier.
func (s *Store) Identity(ctx context.Context) (string, error) { return s.store.Identity(ctx) }

// Group implements dedupstore.Grouper.
func (s *Store) Group() int { return s.store.Group() }

// GroupStats implements dedupstore.GroupReporter.
func (s *Store) GroupStats() (stats dedupstore.GroupStats, ok bool) { return s.store.GroupStats() }

// WatchGroups implements dedupstore.GroupReporter.
func (s *Store) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	s.store.WatchGroups(watcher, f)
}
