package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/internal/sqlclass"
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
// outcome is unknown then. A connection is closed if its session may be to blame for an error of f.
func (d *Database) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	if d.db == nil {
		return errors.New("sqloutbox: the database is nil: open one with sql.Open")
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		release(ctx, conn)
		return err
	}
	over := false
	defer func() {
		if !over {
			_ = tx.Rollback()
			release(ctx, conn)
		}
	}()
	if err := f(ctx, txOf{tx}); err != nil {
		if over = sqlclass.Spoils(err); over {
			giveUp(ctx, conn, tx)
		}
		return err
	}
	over = true
	committed := make(chan error, 1)
	go func() {
		err := tx.Commit()
		_ = conn.Close()
		committed <- err
	}()
	select {
	case err := <-committed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("sqloutbox: the outcome of the commit is unknown: %w", context.Cause(ctx))
	}
}

// release gives the connection back. Where ctx is done, database/sql may be about to roll back, which need not be
// waited for.
func release(ctx context.Context, conn *sql.Conn) {
	if ctx.Err() != nil {
		go func() { _ = conn.Close() }()
		return
	}
	_ = conn.Close()
}

// giveUp has the connection closed, and a pooler its own to the server, which it does only in a transaction.
func giveUp(ctx context.Context, conn *sql.Conn, tx *sql.Tx) {
	_ = tx.Rollback()
	if ctx.Err() == nil {
		_, _ = conn.ExecContext(ctx, "begin")
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	release(ctx, conn)
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
