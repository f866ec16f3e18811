package deadsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/internal/sqlstate"
	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// explain says what was done when err came, and whose fault it is. A bad value or a constraint is the deployment's: the
// columns are filled by us, and take any message. A connection that is lost is left to the stores, in whose
// transactions it happens.
func (b *base) explain(what string, err error) error {
	err = fmt.Errorf("%s: %s: %w", b.pkg, what, err)
	class := sqlclass.Of(err)
	if class == dedupstore.Unclassified && answered(err) {
		class = dedupstore.Misconfigured
	}
	if class == dedupstore.Unclassified {
		return err
	}
	return dedupstore.WithClass(class, err)
}

// swallowed is the error of a statement that has changed no row of a table although it should have: nobody may take
// that for an answer.
func (b *base) swallowed(what, table string) error {
	return dedupstore.WithClass(dedupstore.Misconfigured,
		fmt.Errorf("%s: %s: a trigger or a rule of the table %s swallows or changes what is written, or a policy of row-level security hides it: remove it", b.pkg, what, table))
}

// answered reports whether the database refused what a row has, or a trigger did.
func answered(err error) bool {
	for _, class := range []string{"22", "23", "44", "P0"} {
		if strings.HasPrefix(sqlstate.Of(err), class) {
			return true
		}
	}
	return sqlclass.SQLiteCode(err)&0xff == sqlclass.SQLiteConstraint
}

// check compares a table with that of package schema, leaving out what its caller can do without, and then has the
// database plan a statement, which it does not run.
func (b *base) check(ctx context.Context, component schema.Component, table string, without func(schema.Finding) bool,
	text func() (string, error), args []any) error {
	if b.invalid != nil {
		return b.invalid
	}
	in := b.cfg.Schema
	if b.dialect.name != schema.SQLite {
		var err error
		if in, err = b.schemaOf(ctx, b.pool, table); err != nil && !errors.Is(err, sqltable.ErrNotFound) {
			return err
		}
	}
	found, err := b.dialect.name.Check(ctx, b.ask, b.cfg.tables(in), component)
	if err != nil {
		return b.unable(ctx, err)
	}
	var problems []string
	for _, f := range found {
		if f.Level == schema.LevelError && !without(f) {
			problems = append(problems, f.Table+": "+f.String())
		}
	}
	if len(problems) > 0 {
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: a table cannot be used: %s", b.pkg,
			strings.ReplaceAll(strings.Join(problems, "; "), ";; ", "; ")))
	}
	return b.plan(ctx, text, args...)
}

// plan has the database plan a statement, which it does not run.
func (b *base) plan(ctx context.Context, text func() (string, error), args ...any) error {
	sql, err := text()
	if err != nil {
		return err
	}
	if _, err := b.ask(ctx, "explain "+sql, args...); err != nil {
		return b.unable(ctx, err)
	}
	return nil
}

// unable is the error of a check that could not be made, or of a table that was not found.
func (b *base) unable(ctx context.Context, err error) error {
	const what = "look at the tables"
	switch {
	case errors.Is(err, sqltable.ErrNoUsage), errors.Is(err, sqltable.ErrNotFound):
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: %s: %w", b.pkg, what, err))
	case sqlstate.Of(err) == "42501" && b.cfg.Schema != "":
		if hidden := sqltable.Hidden(ctx, asker(b.pool), b.cfg.Schema, b.cfg.Table); errors.Is(hidden, sqltable.ErrNoUsage) {
			return b.unable(ctx, hidden)
		}
	case ctx.Err() == nil && sqlclass.Of(err) == dedupstore.Unclassified && !strings.HasPrefix(sqlstate.Of(err), "42"):
		err = fmt.Errorf("%w: %w", dedupstore.ErrUnavailable, err)
	}
	return b.explain(what, err)
}

// ask asks the pool. It is a schema.Query.
func (b *base) ask(ctx context.Context, text string, args ...any) (string, error) {
	return asker(b.pool)(ctx, text, args...)
}

// asker returns the first row, of one column, as a text; of a plan, nothing.
func asker(c Conn) sqltable.Query {
	return func(ctx context.Context, text string, args ...any) (answer string, err error) {
		rows, err := c.Query(ctx, text, args...)
		if err != nil {
			return "", err
		}
		defer func() { _ = rows.Close() }()
		if rows.Next() && !strings.HasPrefix(text, "explain ") {
			err = rows.Scan(&answer)
		}
		return answer, errors.Join(err, rows.Close(), rows.Err())
	}
}

// number returns the only number of the only row.
func (b *base) number(ctx context.Context, what, text string, args ...any) (n int64, err error) {
	rows, err := b.pool.Query(ctx, text, args...)
	if err != nil {
		return 0, b.explain(what, err)
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		err = errors.Join(rows.Err(), sql.ErrNoRows)
	} else {
		err = rows.Scan(&n)
	}
	if err := errors.Join(err, rows.Close(), rows.Err()); err != nil {
		return 0, b.explain(what, err)
	}
	return n, nil
}
