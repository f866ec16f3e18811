package deadsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlstate"
	"github.com/einmal-go/einmal/schema"
)

// explain says what was done when err came. It gives what an operator must cure its class, and leaves the rest to the stores, in
// whose transactions it happens.
func (b *base) explain(what string, err error) error {
	err = fmt.Errorf("%s: %s: %w", b.pkg, what, err)
	if misconfigured(err) {
		return dedupstore.WithClass(dedupstore.Misconfigured, err)
	}
	return err
}

// misconfigured reports whether a table, a column or a privilege is missing.
func misconfigured(err error) bool {
	switch sqlstate.Of(err) {
	case "42P01", "42703", "42501", "42804", "23502", "428C9": // the last ones: a column of another type, not null, or generated
		return true
	case "":
		text := err.Error()
		return strings.Contains(text, "no such table") || strings.Contains(text, "no column named") || strings.Contains(text, "no such column")
	}
	return false
}

// check compares a table with that of package schema, leaving out what its caller can do without, and then has the database plan a
// statement, which it does not run.
func (b *base) check(ctx context.Context, component schema.Component, without func(schema.Finding) bool, text string, args []any) error {
	if b.invalid != nil {
		return b.invalid
	}
	found, err := b.dialect.name.Check(ctx, b.ask, b.cfg.tables(), component)
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
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: a table cannot be used: %s", b.pkg, strings.Join(problems, "; ")))
	}
	if _, err := b.ask(ctx, "explain "+text, args...); err != nil {
		return b.unable(ctx, err)
	}
	return nil
}

// unable is the error of a check that could not be made.
func (b *base) unable(ctx context.Context, err error) error {
	if ctx.Err() == nil && !misconfigured(err) && !strings.HasPrefix(sqlstate.Of(err), "42") {
		err = fmt.Errorf("%w: %w", dedupstore.ErrUnavailable, err)
	}
	return b.explain("look at the tables", err)
}

// ask returns the first row, of one column, as a text; of a plan, nothing. It is a schema.Query.
func (b *base) ask(ctx context.Context, text string, args ...any) (answer string, err error) {
	rows, err := b.pool.Query(ctx, text, args...)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() && !strings.HasPrefix(text, "explain ") {
		err = rows.Scan(&answer)
	}
	return answer, errors.Join(err, rows.Close(), rows.Err())
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
