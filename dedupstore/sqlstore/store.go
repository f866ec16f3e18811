package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltx"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds the table. SQLite has no schemas.
	Schema string

	// Table is the name of the table, as it is spelled in the catalogue, without quotes. Defaults to processed_event.
	Table string

	// DoNothing records by ON CONFLICT DO NOTHING instead of the upsert that counts redeliveries. A redelivery is cheaper
	// then, since it writes nothing; package pgxstore has the price. Where the table cannot take the upsert, because it is
	// partitioned for example, this is the way without being asked for.
	DoNothing bool

	// Group is the most calls of Once that share a transaction; 0 or 1 is one each. Calls that arrive while a transaction
	// is under way form the next one, and nobody waits for a group to fill. docs/groups.md says what it gains, and what
	// differs for the function.
	Group int

	// LockTimeout is how long a call waits for another transaction that holds its key, and for any other lock that the
	// record needs; then it fails with an error that wraps dedupstore.ErrLocked. It does not apply to the function's
	// statements. Defaults to 5 s: longer than most functions run, much shorter than IdleTimeout. For SQLite, set the
	// connections' busy_timeout instead.
	LockTimeout time.Duration

	// IdleTimeout is how long the function may leave the transaction alone, between two of its statements or before the
	// first: for that long, an owner that is frozen blocks its successor. Then the server ends the session
	// (idle_in_transaction_session_timeout), which rolls back. It must exceed the longest pause that a function takes for
	// something else, such as a call of another service. Defaults to 60 s: longer than the usual time-outs of such
	// calls. SQLite has nothing like it.
	IdleTimeout time.Duration

	// CommitTimeout is how long COMMIT may take, and ROLLBACK, and, on top of LockTimeout, the record. It does not depend
	// on the context of Once, which may well end then: a COMMIT that is cut short has an unknown outcome. Defaults to 5 s:
	// a disk or a synchronous replica that takes longer needs attention.
	CommitTimeout time.Duration

	// Logger is told once when calls of Once wait for each other because the pool is small. Defaults to slog.Default().
	Logger *slog.Logger
}

// Store records keys in a table of a database. It is safe for concurrent use.
type Store struct{ store *sqltx.Store[*sql.Tx] }

var (
	_ dedupstore.Store[*sql.Tx]      = (*Store)(nil)
	_ dedupstore.Forgetter[*sql.Tx]  = (*Store)(nil)
	_ dedupstore.Checker             = (*Store)(nil)
	_ dedupstore.Identifier          = (*Store)(nil)
	_ dedupstore.Transactor[*sql.Tx] = (*Store)(nil)
)

// New returns a Store on db, which stays the caller's to close, after the last Once has returned. The dialect is
// schema.Postgres or schema.SQLite. New does no input or output. What is wrong with its arguments is the error of
// Check, and of every Once.
func New(db *sql.DB, dialect schema.Dialect, cfg *Config) *Store {
	if cfg == nil {
		cfg = &Config{}
	}
	full := record.Config(*cfg).WithDefaults()
	driver, texts, unknown := sqltx.ForDialect(sqltx.Driver[*sql.Tx]{
		DB: db,
		Conn: func(ctx context.Context) (*sql.Conn, sqltx.Begin[*sql.Tx], error) {
			conn, err := db.Conn(ctx)
			return conn, conn.BeginTx, err
		},
		SQL: func(tx *sql.Tx) *sql.Tx { return tx },
	}, "sqlstore", dialect, full)
	var invalid error
	if db == nil {
		invalid = errors.New("the database is nil: open one with sql.Open")
	}
	return &Store{sqltx.New(driver, texts, full, errors.Join(invalid, unknown, full.Validate()))}
}

// Once implements dedupstore.Store. At most one less than the pool's MaxOpenConns run at once, if that is set, so that
// the rest of the service finds a connection; the others wait.
func (s *Store) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx *sql.Tx) error) (ran bool,
	err error) {
	return s.store.Once(ctx, key, fn)
}

// InTx implements dedupstore.Transactor.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return s.store.InTx(ctx, fn)
}

// Forget implements dedupstore.Forgetter. It needs the privilege to delete, which nothing else in the store does.
func (s *Store) Forget(ctx context.Context, tx *sql.Tx, key dedupstore.Key) error {
	return s.store.Forget(ctx, tx, key)
}

// Check implements dedupstore.Checker: it reports everything that would make Once fail, with the SQL to run. It
// connects, looks at the table, and records a key of its own in a transaction that it rolls back.
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
