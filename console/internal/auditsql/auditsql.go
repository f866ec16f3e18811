// Package auditsql is what the audit tables of the console are made of: the statements for each dialect. The drivers'
// packages bring a Conn.
package auditsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// Config is where the table is. The packages' own Config types have the same fields, and their documentation.
type Config struct {
	Schema string
	Table  string
}

const table = "console_action"

// Conn sends statements.
type Conn interface {
	// Number returns the only number of the answer's only row. The error wraps the driver's; found is false if there is no
	// row.
	Number(ctx context.Context, text string, args ...any) (n int64, found bool, err error)
}

// Audit is a table of actions. It implements console.Audit.
type Audit struct {
	pkg     string // begins each error
	conn    Conn
	invalid error // what is wrong with the arguments
	dialect schema.Dialect
	name    string // as it stands in a format of SQL
}

var _ console.Audit = (*Audit)(nil)

// New returns an Audit. invalid is what is wrong with the arguments: the error of every call.
func New(pkg string, dialect schema.Dialect, cfg Config, conn Conn, invalid error) *Audit {
	if dialect != schema.Postgres && dialect != schema.SQLite {
		invalid = errors.Join(invalid, fmt.Errorf("the dialect %q is not known: use schema.Postgres or schema.SQLite",
			dialect))
	}
	in := cfg.Schema
	if dialect == schema.SQLite {
		in = "main"
	}
	name := sqltable.Name(in, cmp.Or(cfg.Table, table))
	return &Audit{pkg: pkg, conn: conn, invalid: invalid, dialect: dialect, name: strings.ReplaceAll(name, "%", "%%")}
}

// Begin implements console.Audit.
func (a *Audit) Begin(ctx context.Context, e console.Entry) (id int64, err error) {
	id, found, err := a.number(ctx, "insert into "+a.name+
		" (done_by, action, target, reason) values (%s, %s, %s, %s) returning id",
		text(e.Who), text(string(e.Action)), text(e.Target), text(e.Reason))
	if err == nil && !found {
		err = fmt.Errorf("%s: a trigger or a rule of the table %s swallows what is written: remove it", a.pkg, a.name)
	}
	return id, err
}

// End implements console.Audit.
func (a *Audit) End(ctx context.Context, id, count int64, failed string) error {
	now := "clock_timestamp()"
	if a.dialect == schema.SQLite {
		now = "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')"
	}
	_, found, err := a.number(ctx, "update "+a.name+" set ended_at = "+now+
		", changed = %s, error = %s where id = %s returning id", count, text(failed), id)
	if err == nil && !found {
		err = fmt.Errorf("%s: the row %d of the action is gone", a.pkg, id)
	}
	return err
}

// number has a statement with its parameters in place of each %s.
func (a *Audit) number(ctx context.Context, format string, args ...any) (n int64, found bool, err error) {
	if a.invalid != nil {
		return 0, false, fmt.Errorf("%s: %w", a.pkg, a.invalid)
	}
	params := make([]any, len(args))
	for i := range params {
		if params[i] = fmt.Sprintf("$%d", i+1); a.dialect == schema.SQLite {
			params[i] = fmt.Sprintf("?%d", i+1)
		}
	}
	if n, found, err = a.conn.Number(ctx, fmt.Sprintf(format, params...), args...); err != nil {
		err = fmt.Errorf("%s: %w; the table is made by: einmal schema print -db %s console", a.pkg, err, a.dialect)
	}
	return n, found, err
}

// text is what every database takes.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
