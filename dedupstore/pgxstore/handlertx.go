package pgxstore

import (
	"context"
	"regexp"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
)

// handlerTx is the transaction as the function sees it: it cannot be ended.
type handlerTx struct {
	pgx.Tx
	ended atomic.Bool // the function tried to
	sets  atomic.Bool // it has changed a setting of the session
	local atomic.Bool // or one of the transaction
}

var setLocal = regexp.MustCompile(`(?i)^\s*set\s+local\s`)

// Exec implements pgx.Tx.
func (tx *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := tx.Tx.Exec(ctx, sql, args...)
	switch does := tag.String(); {
	case does == "SET" && setLocal.MatchString(sql):
		tx.local.Store(true)
	case does == "SET" || does == "RESET":
		tx.sets.Store(true)
	}
	return tag, err
}

// Commit refuses, and makes the call fail.
func (tx *handlerTx) Commit(context.Context) error { return tx.refuse() }

// Rollback refuses, and makes the call fail.
func (tx *handlerTx) Rollback(context.Context) error { return tx.refuse() }

func (tx *handlerTx) refuse() error {
	tx.ended.Store(true)
	return dedupstore.ErrTxEnded
}
