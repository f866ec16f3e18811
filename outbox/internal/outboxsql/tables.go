// Package outboxsql has what the writer, the operator's functions and the relay share in their SQL: the names of the
// tables, and the texts of arrays as arguments of statements. It knows no driver.
package outboxsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// The tables' names in the files of package schema.
const (
	EventTable = "outbox_event"
	leaseTable = "outbox_lease"
	modeTable  = "outbox_mode"
)

// Buckets is into how many buckets the events are divided by topic and key. It is part of the table.
const Buckets = 64

// Tables are the names as they stand in SQL.
type Tables struct{ Event, Lease, Mode string }

// NewTables returns the names of the tables. A nil cfg leaves it to the search_path to find them.
func NewTables(cfg *schema.Config) Tables {
	name := func(table string) string {
		if cfg == nil {
			return table
		}
		if other := cfg.Tables[table]; other != "" {
			table = quote(other)
		}
		if cfg.Schema != "" {
			table = quote(cfg.Schema) + "." + table
		}
		return table
	}
	return Tables{Event: name(EventTable), Lease: name(leaseTable), Mode: name(modeTable)}
}

// Query is that of an outbox.Tx.
type Query func(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error

// Find returns the names of the tables with the schemas in which the session finds them now, so that nothing that is
// set or made in a session later makes them mean others. A table that is not there keeps its bare name, which is left
// to the statements to complain about; all says that there is none. The error wraps sqltable.ErrNoUsage where the role
// may not look into the schema.
func Find(ctx context.Context, query Query, cfg *schema.Config) (t Tables, all bool, err error) {
	ask := func(ctx context.Context, sql string, args ...any) (answer string, err error) {
		err = query(ctx, sql, args, func(scan func(dest ...any) error) error { return scan(&answer) })
		return answer, err
	}
	if cfg == nil {
		cfg = &schema.Config{}
	}
	if cfg.Schema != "" {
		err := sqltable.Hidden(ctx, ask, cfg.Schema, cmp.Or(cfg.Tables[EventTable], EventTable))
		return NewTables(cfg), true, looking(err)
	}
	t, all = NewTables(cfg), true
	for table, name := range map[string]*string{EventTable: &t.Event, leaseTable: &t.Lease, modeTable: &t.Mode} {
		table = cmp.Or(cfg.Tables[table], table)
		var place sqltable.Place
		switch in, err := place.Find(ctx, ask, table); {
		case errors.Is(err, sqltable.ErrNotFound):
			all = false
		case err != nil:
			return t, false, looking(err)
		default:
			*name = sqltable.Name(in, table)
		}
	}
	return t, all, nil
}

// looking says what was done when err came.
func looking(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("look for the tables: %w", err)
}

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// In puts the names into a statement, in the places of {event}, {lease} and {mode}.
func (t Tables) In(sql string) string {
	return strings.NewReplacer("{event}", t.Event, "{lease}", t.Lease, "{mode}", t.Mode).Replace(sql)
}
