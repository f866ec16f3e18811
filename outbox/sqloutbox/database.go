package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/outbox"
)

// Database is an outbox.Database on a *sql.DB.
type Database struct{ db *sql.DB }

var _ outbox.Database = (*Database)(nil)

// NewDatabase returns a Database on db, which stays the caller's to close, after the relay has returned. Give the
// relay a pool of its own, with two connections more than it has workers: a pool that the service has drained would
// stop it.
func NewDatabase(db *sql.DB) *Database { return &Database{db} }

// InTx implements outbox.Database. COMMIT takes no context in database/sql: it is left behind when ctx ends, and its
// outcome is unknown then.
func (d *Database) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	if d.db == nil {
		return errors.New("sqloutbox: the database is nil: open one with sql.Open")
	}
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	over := false
	defer func() {
		if !over {
			_ = tx.Rollback()
		}
	}()
	if err := f(ctx, txOf{tx}); err != nil {
		return err
	}
	over = true
	committed := make(chan error, 1)
	go func() { committed <- tx.Commit() }()
	select {
	case err := <-committed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("sqloutbox: the outcome of the commit is unknown: %w", context.Cause(ctx))
	}
}

type txOf struct{ tx *sql.Tx }

// Exec implements outbox.Tx.
func (t txOf) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := t.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query implements outbox.Tx.
func (t txOf) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	rows, err := t.tx.QueryContext(ctx, text, args...)
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
