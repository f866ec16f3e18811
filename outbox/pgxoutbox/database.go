package pgxoutbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/outbox"
)

// Database is an outbox.Database on a pool of pgx.
type Database struct{ pool *pgxpool.Pool }

var _ outbox.Database = (*Database)(nil)

// NewDatabase returns a Database on pool, which stays the caller's to close, after the relay has returned. Give the
// relay a pool of its own, with two connections more than it has workers: a pool that the service has drained would
// stop it.
func NewDatabase(pool *pgxpool.Pool) *Database { return &Database{pool} }

// rollbackTimeout is how long ROLLBACK may take; then the connection is closed, and the server rolls back.
const rollbackTimeout = 5 * time.Second

// InTx implements outbox.Database. A connection is closed if its session may be to blame for an error of f.
func (d *Database) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	if d.pool == nil {
		return errors.New("pgxoutbox: the pool is nil: make one with pgxpool.New")
	}
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ctx) // does nothing after a commit
	}()
	if err := f(ctx, txOf{tx}); err != nil {
		if sqlclass.Spoils(err) { // within the transaction: a pooler closes its own connection to the server then
			_ = tx.Conn().Close(ctx)
		}
		return err
	}
	return tx.Commit(ctx)
}

type txOf struct{ tx pgx.Tx }

// Exec implements outbox.Tx.
func (t txOf) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

// Query implements outbox.Tx.
func (t txOf) Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error {
	rows, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
