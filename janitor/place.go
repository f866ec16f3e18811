package janitor

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/internal/sqltable"
)

// place is where a table is. It is found once: rows of a table that comes before it later, in a schema that is made or
// in a session that somebody has changed, are not the ones that may be deleted.
type place struct{ in atomic.Pointer[string] }

// mainSchema is that of SQLite's own tables: a temporary one would come before one that does not say it.
const mainSchema = "main"

// schema is empty as long as it is not known.
func (p *place) schema() string {
	if in := p.in.Load(); in != nil {
		return *in
	}
	return ""
}

// find looks for the table if it is not known where it is. One that is not there is left to the statements.
func (t *Table) find(ctx context.Context, conn *sql.Conn) error {
	if t.Schema != "" || t.place.schema() != "" {
		return nil
	}
	var where sqltable.Place
	in, err := where.Find(ctx, func(ctx context.Context, text string, args ...any) (answer string, err error) {
		err = conn.QueryRowContext(ctx, text, args...).Scan(&answer)
		return answer, err
	}, t.Name)
	switch {
	case errors.Is(err, sqltable.ErrNotFound):
		return nil
	case err != nil:
		return explain(t, "look for the table", err)
	}
	t.place.in.CompareAndSwap(nil, &in)
	return nil
}

// release gives a connection back, unless its session may be to blame for the error: then it is closed, in a
// transaction, so that a pooler closes its own to the server.
func release(ctx context.Context, conn *sql.Conn, err error) {
	if sqlclass.Spoils(err) && ctx.Err() == nil {
		_, _ = conn.ExecContext(ctx, "begin")
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close()
}
