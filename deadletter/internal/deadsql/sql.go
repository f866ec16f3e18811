package deadsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// SQL makes a Conn of a *sql.DB or a *sql.Tx.
func SQL(c SQLConn) Conn { return sqlConn{c} }

// SQLConn is what both have.
type SQLConn interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

type sqlConn struct{ SQLConn }

// Begin implements Beginner, for a pool.
func (c sqlConn) Begin(ctx context.Context) (tx Conn, end func() error, err error) {
	pool, ok := c.SQLConn.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	if !ok {
		return c, func() error { return nil }, nil
	}
	begun, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return SQL(begun), begun.Rollback, nil
}

// Shed implements Shedder, for a pool. A pooler closes its own connection to the server in a transaction alone.
func (c sqlConn) Shed(ctx context.Context) {
	pool, ok := c.SQLConn.(*sql.DB)
	if !ok {
		return
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return
	}
	_, _ = conn.ExecContext(ctx, "begin")
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

func (c sqlConn) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := c.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c sqlConn) Query(ctx context.Context, text string, args ...any) (Rows, error) {
	rows, err := c.QueryContext(ctx, text, args...) //nolint:rowserrcheck // the caller's
	if err != nil {
		return nil, err
	}
	return rows, nil
}
