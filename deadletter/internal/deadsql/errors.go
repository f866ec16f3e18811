package deadsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
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
	switch stateOf(err) {
	case "42P01", "42703", "42501", "42804", "23502", "428C9": // the last ones: a column of another type, not null, or generated
		return true
	case "":
		text := err.Error()
		return strings.Contains(text, "no such table") || strings.Contains(text, "no column named") || strings.Contains(text, "no such column")
	}
	return false
}

// stateOf returns the SQLSTATE of a server's answer, or "".
func stateOf(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	var fields interface{ Field(k byte) string }
	if errors.As(err, &fields) {
		return fields.Field('C')
	}
	return ""
}

// check has the database plan a statement, which it does not run.
func (b *base) check(ctx context.Context, table string, component schema.Component, text string, args []any) error {
	if b.invalid != nil {
		return b.invalid
	}
	rows, err := b.pool.Query(ctx, "explain "+text, args...)
	if err == nil {
		for rows.Next() { // to the end
		}
		err = errors.Join(rows.Err(), rows.Close())
	}
	switch {
	case err == nil:
		return nil
	case stateOf(err) == "42501":
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: the user may not write to %s; run as its owner: grant select, insert, update, delete on %s to <the user>; (%w)", b.pkg, table, table, err))
	case misconfigured(err):
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: the table %s cannot be used (%w); where it is missing, run:\n%s\nwhere it is there, add what that has and it has not",
			b.pkg, table, err, b.dialect.name.SQL(b.cfg.tables(), component)))
	case ctx.Err() == nil && stateOf(err) == "":
		return fmt.Errorf("%s: look at the table %s: %w: %w", b.pkg, table, dedupstore.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: look at the table %s: %w", b.pkg, table, err)
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
