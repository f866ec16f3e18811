package pgxstore

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
)

// handlerTx is the transaction as the function sees it: it cannot be ended.
type handlerTx struct {
	pgx.Tx
	ended atomic.Bool // the function tried to
}

// Commit refuses, and makes the call fail.
func (tx *handlerTx) Commit(context.Context) error { return tx.refuse() }

// Rollback refuses, and makes the call fail.
func (tx *handlerTx) Rollback(context.Context) error { return tx.refuse() }

func (tx *handlerTx) refuse() error {
	tx.ended.Store(true)
	return dedupstore.ErrTxEnded
}
