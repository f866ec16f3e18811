package pgxidempotency

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/internal/idemsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds the table.
	Schema string

	// Table is the name of the table, as it is spelled in the catalogue, without quotes. Defaults to idempotency_key.
	Table string

	// IdleTimeout is how long the handler may leave the transaction alone, between two of its statements or before the
	// first. Then the server ends the session (idle_in_transaction_session_timeout), which rolls back. Until then a
	// process that is frozen has its key answered with 409. Defaults to 60 s: longer than the usual time-outs of requests.
	IdleTimeout time.Duration

	// CommitTimeout is how long COMMIT may take, and ROLLBACK, and the store's own statements. For COMMIT it does not
	// depend on the context of the request, which may well end then: a COMMIT that is cut short has an unknown outcome.
	// Defaults to 5 s: a disk or a synchronous replica that takes longer needs attention.
	CommitTimeout time.Duration

	// Logger is told once when requests wait for each other because the pool is small. Defaults to slog.Default().
	Logger *slog.Logger
}

const defaultCommitTimeout = 5 * time.Second

// Store keeps answers in a table of a PostgreSQL database. It is safe for concurrent use.
type Store struct{ *idemsql.Store[pgx.Tx] }

var (
	_ idempotency.Store[pgx.Tx] = (*Store)(nil)
	_ dedupstore.Checker        = (*Store)(nil)
)

// New returns a Store on pool, which stays the caller's to close, after the last request. It does no input or output.
// What is wrong with its arguments is the error of Check, and of every other call.
func New(pool *pgxpool.Pool, cfg *Config) *Store {
	if cfg == nil {
		cfg = &Config{}
	}
	driver := idemsql.Driver[pgx.Tx]{
		Transactor: pgxstore.New(pool, &pgxstore.Config{
			Schema: cfg.Schema, Table: cfg.Table, IdleTimeout: cfg.IdleTimeout, CommitTimeout: cfg.CommitTimeout,
			Logger: cfg.Logger,
		}),
		Run: run,
		Ask: func(ctx context.Context, text string, args ...any) (answer string, err error) {
			err = pool.QueryRow(ctx, text, args...).Scan(&answer)
			return answer, err
		},
	}
	return &Store{idemsql.New("pgxidempotency", driver, schema.Postgres, idemsql.Config{
		Schema: cfg.Schema, Table: cfg.Table, Timeout: cmp.Or(cfg.CommitTimeout, defaultCommitTimeout),
	})}
}

var errRowsOpen = errors.New("rolled back: the function returned while rows or a batch of its were open: close them")

// run sends all at once.
func run(ctx context.Context, tx pgx.Tx, steps ...idemsql.Step) error {
	if tx.Conn().PgConn().IsBusy() {
		return errRowsOpen
	}
	var batch pgx.Batch
	for _, step := range steps {
		q := batch.Queue(step.SQL, step.Args...)
		if step.Dest == nil {
			q.Exec(func(pgconn.CommandTag) error { return nil })
			continue
		}
		q.QueryRow(func(row pgx.Row) error {
			err := row.Scan(step.Dest...)
			*step.Found = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}
	return tx.SendBatch(ctx, &batch).Close()
}
