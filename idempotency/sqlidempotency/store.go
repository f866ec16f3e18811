package sqlidempotency

import (
	"cmp"
	"database/sql"
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/internal/idemsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds the table. SQLite has no schemas.
	Schema string

	// Table is the name of the table, as it is spelled in the catalogue, without quotes. Defaults to idempotency_key.
	Table string

	// IdleTimeout is how long the handler may leave the transaction alone, between two of its statements or before the
	// first. Then the server ends the session (idle_in_transaction_session_timeout), which rolls back. Until then a
	// process that is frozen has its key answered with 409. Defaults to 60 s: longer than the usual time-outs of requests.
	// SQLite has nothing like it.
	IdleTimeout time.Duration

	// CommitTimeout is how long COMMIT may take, and ROLLBACK, and the store's own statements. For COMMIT it does not
	// depend on the context of the request, which may well end then: a COMMIT that is cut short has an unknown outcome.
	// Defaults to 5 s: a disk or a synchronous replica that takes longer needs attention. For SQLite it is longer than the
	// connections' busy_timeout.
	CommitTimeout time.Duration

	// Logger is told once when requests wait for each other because the pool is small. Defaults to slog.Default().
	Logger *slog.Logger
}

const defaultCommitTimeout = 5 * time.Second

// Store keeps answers in a table of a database. It is safe for concurrent use.
type Store struct{ *idemsql.Store[*sql.Tx] }

var (
	_ idempotency.Store[*sql.Tx] = (*Store)(nil)
	_ dedupstore.Checker         = (*Store)(nil)
)

// New returns a Store on db, which stays the caller's to close, after the last request. The dialect is schema.Postgres
// or schema.SQLite. New does no input or output. What is wrong with its arguments is the error of Check, and of every
// other call.
func New(db *sql.DB, dialect schema.Dialect, cfg *Config) *Store {
	if cfg == nil {
		cfg = &Config{}
	}
	driver := idemsql.Driver[*sql.Tx]{
		Transactor: sqlstore.New(db, dialect, cfg.transactions()),
		Run:        idemsql.RunSQL,
		Ask:        idemsql.AskSQL(db),
	}
	return &Store{idemsql.New("sqlidempotency", driver, dialect, idemsql.Config{
		Schema: cfg.Schema, Table: cfg.Table, Timeout: cmp.Or(cfg.CommitTimeout, defaultCommitTimeout),
	})}
}

func (c *Config) transactions() *sqlstore.Config {
	return &sqlstore.Config{Schema: c.Schema, Table: c.Table, IdleTimeout: c.IdleTimeout, CommitTimeout: c.CommitTimeout,
		Logger: c.Logger}
}
