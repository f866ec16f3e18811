package deadsql

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/einmal-go/einmal/schema"
)

// Conn sends statements, within a transaction or without.
type Conn interface {
	Exec(ctx context.Context, text string, args ...any) (affected int64, err error)
	Query(ctx context.Context, text string, args ...any) (Rows, error)
}

// Rows are the rows of an answer. Close may be called twice.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// dialect is what differs between databases.
type dialect struct {
	name   schema.Dialect
	mark   string                   // before the number of a parameter
	skip   string                   // behind a select that locks its rows, and does not wait
	chosen string                   // rows by their ids, which a select in place of %s finds
	json   string                   // behind a parameter, or a column, that is JSON
	text   string                   // behind a column of JSON that is read as a text
	like   func(text string) string // compares a column with a pattern that looks for a text, whatever the case of its letters
	limit  string                   // statements of a transaction that only reads, and their time in milliseconds; "" if there is no such thing
	now    string
	time   func(t time.Time) any
	moment func(column string) string // a column of times, in a form that readTime takes
}

var dialects = map[schema.Dialect]*dialect{
	schema.Postgres: {
		name: schema.Postgres, mark: "$", skip: " for update skip locked", chosen: "id = any(array(%s))", json: "::jsonb",
		text: "::text",
		like: like,
		limit: "select set_config('statement_timeout', '%d', true), set_config('transaction_read_only', 'on', true), " +
			"set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)", // a plan for these arguments
		now:  "clock_timestamp()",
		time: func(t time.Time) any { return t },
		moment: func(column string) string { // not as the session's DateStyle and TimeZone have it, which drivers cannot read
			return `to_char(` + column + ` at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
		},
	},
	schema.SQLite: {
		name: schema.SQLite, mark: "?", chosen: "id in (%s)",
		like:   func(string) string { return `%s like %s escape '\'` },
		now:    "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
		time:   func(t time.Time) any { return t.UTC().Format(sqliteTime) },
		moment: func(column string) string { return column },
	},
}

// like is PostgreSQL's. Where the text is ASCII, other letters need not be compared, which takes most of the time.
func like(text string) string {
	for _, r := range text {
		if r >= utf8.RuneSelf {
			return "%s ilike %s"
		}
	}
	return `%s collate "C" ilike %s`
}

// sqliteTime is the form in which SQLite's own strftime writes it, so that texts are in the order of the times.
const sqliteTime = "2006-01-02T15:04:05.000Z"

func dialectOf(name schema.Dialect) (*dialect, error) {
	if d, ok := dialects[name]; ok {
		return d, nil
	}
	return dialects[schema.Postgres], fmt.Errorf("the dialect %q is not known: use schema.Postgres or schema.SQLite", name)
}

func (d *dialect) param(n int) string { return d.mark + strconv.Itoa(n) }

// timeArg is an argument for a column that may be null.
func (d *dialect) timeArg(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return d.time(t)
}

// bytesArg keeps nil and empty apart, whatever the driver thinks of them.
func bytesArg(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// readTime takes a time, or SQLite's text of one. What was edited by hand into something else is no time.
func readTime(v any) time.Time {
	switch v := v.(type) {
	case time.Time:
		return v.UTC()
	case string:
		for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
			if t, err := time.Parse(layout, v); err == nil {
				return t.UTC()
			}
		}
	case []byte:
		return readTime(string(v))
	}
	return time.Time{}
}
