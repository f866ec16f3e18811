package bunidempotency

import (
	"cmp"
	"context"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/internal/idemsql"
	"github.com/einmal-go/einmal/idempotency/sqlidempotency"
	"github.com/einmal-go/einmal/internal/bundriver"
	"github.com/einmal-go/einmal/schema"
)

const defaultCommitTimeout = 5 * time.Second

// Store keeps answers in a table of a database. It is safe for concurrent use.
type Store struct{ *idemsql.Store[bun.Tx] }

var (
	_ idempotency.Store[bun.Tx] = (*Store)(nil)
	_ dedupstore.Checker        = (*Store)(nil)
)

// New returns a Store on db, which stays the caller's to close, after the last request. A nil cfg is all defaults. New
// does no input or output. What is wrong with its arguments is the error of Check, and of every other call.
func New(db *bun.DB, cfg *sqlidempotency.Config) *Store {
	if cfg == nil {
		cfg = &sqlidempotency.Config{}
	}
	driver := idemsql.Driver[bun.Tx]{
		Transactor: bunstore.New(db, &sqlstore.Config{
			Schema: cfg.Schema, Table: cfg.Table, IdleTimeout: cfg.IdleTimeout, CommitTimeout: cfg.CommitTimeout,
			Logger: cfg.Logger,
		}),
		Run: func(ctx context.Context, tx bun.Tx, steps ...idemsql.Step) error {
			return idemsql.RunSQL(ctx, tx.Tx, steps...) // the values stand beside the texts, not in them
		},
	}
	in := schema.Postgres
	if db != nil {
		driver.Ask = idemsql.AskSQL(db.DB)
		if db.Dialect().Name() == dialect.SQLite {
			in = schema.SQLite
		} else {
			driver.Check = func(ctx context.Context) error {
				return bundriver.PreparesNothing(ctx, "bunidempotency",
					driver.Ask)
			}
		}
	}
	return &Store{idemsql.New("bunidempotency", driver, in, idemsql.Config{
		Schema: cfg.Schema, Table: cfg.Table, Timeout: cmp.Or(cfg.CommitTimeout, defaultCommitTimeout),
	})}
}
