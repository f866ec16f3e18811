package janitor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// sqlite is the dialect of SQLite.
type sqlite struct{ size int }

// oldSQL takes the columns to select, the table, the column of times, and the condition. The first comparison, of
// texts, uses the index. It takes a few times for older than they are, those of datetime('now') for example, whose
// blank is less than the T of the other form: the second one compares the times, and knows no time where there is only
// a date, or a number.
const oldSQL = `select %[1]s from %[2]s where %[3]s < strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now', ?1) and %[3]s >= ?2
and %[3]s glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]*' and julianday(%[3]s) < julianday('now', ?1)%[4]s
order by %[3]s limit ?3`

// batch implements dialect. It is one statement, which rolls back by itself if it fails.
func (s sqlite) batch(ctx context.Context, conn *sql.Conn, t *Table, from string, pause func() error) (b batch,
	err error) {
	if err := pause(); err != nil {
		return b, err
	}
	key, standard, err := columnsOf(ctx, conn, t)
	if err != nil {
		return b, err
	}
	if from == "" {
		if err := tellsAge(ctx, conn, t, standard); err != nil {
			return b, err
		}
	}
	condition := ""
	if t.Where != "" {
		condition = " and (" + t.Where + ")"
	}
	old := fmt.Sprintf(oldSQL, key, t.sql(), quote(t.Column), condition)
	text := fmt.Sprintf("delete from %s where (%s) in (%s) returning %s || ''", t.sql(), key, old, quote(t.Column)) //nolint:gosec // names are quoted, the condition is code
	rows, err := conn.QueryContext(ctx, text, fmt.Sprintf("-%.3f seconds", t.age().Seconds()), from, s.size)
	if err != nil {
		return b, explain(t, "delete", err)
	}
	defer rows.Close()
	for rows.Next() {
		var at string
		if err := rows.Scan(&at); err != nil {
			return b, explain(t, "delete", err)
		}
		b.deleted++
		b.upTo = max(b.upTo, at)
	}
	if err := rows.Err(); err != nil {
		return batch{}, explain(t, "delete", err)
	}
	b.full = b.deleted == int64(s.size)
	return b, nil
}

// columnsSQL lists a table's columns. Those of the primary key name a row in a table without rowid.
const columnsSQL = `select name, pk, coalesce(dflt_value, '') from pragma_table_xinfo(?1, 'main') order by pk`

// columnsOf returns the columns that name a row, as they stand in SQL, and the default of the column of times,
// likewise.
func columnsOf(ctx context.Context, conn *sql.Conn, t *Table) (key, standard string, err error) {
	rows, err := conn.QueryContext(ctx, columnsSQL, t.Name)
	if err != nil {
		return "", "", explain(t, "look at the table", err)
	}
	defer rows.Close()
	var all, names []string
	for rows.Next() {
		var name, preset string
		var place int
		if err := rows.Scan(&name, &place, &preset); err != nil {
			return "", "", explain(t, "look at the table", err)
		}
		if all = append(all, strings.ToLower(name)); place > 0 {
			names = append(names, quote(name))
		}
		if strings.EqualFold(name, t.Column) {
			standard = preset
		}
	}
	switch err := rows.Err(); {
	case err != nil:
		return "", "", explain(t, "look at the table", err)
	case len(all) > 0 && !slices.Contains(all, strings.ToLower(t.Column)): // else SQLite would take the name for a text
		return "", "", fmt.Errorf("janitor: the table %s has no column %s: correct Table.Column", t, quote(t.Column))
	case len(names) == 0:
		return "rowid", standard, nil // of a table without a primary key; one that is not there fails then
	}
	return strings.Join(names, ", "), standard, nil
}

// leastSQL takes the column and the table: how the least time is stored. Numbers come before texts.
const leastSQL = `select typeof(%[1]s) from %[2]s where %[1]s is not null order by %[1]s limit 1`

// presentSQL takes an expression, and looks whether it is now, in UTC.
const presentSQL = `select coalesce((%s) glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]*'
and abs(julianday(%[1]s) - julianday('now')) * 1440 < 1, false)`

// tellsAge refuses a column whose values do not tell how old a row is: numbers, and times that are not in UTC.
func tellsAge(ctx context.Context, conn *sql.Conn, t *Table, standard string) error {
	refuse := func(why string) error {
		return fmt.Errorf("janitor: the column %s of %s %s, which does not tell how old a row is: nothing is deleted; "+
			"make it text with times as strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now') has them", quote(t.Column), t, why)
	}
	var typ string
	err := conn.QueryRowContext(ctx, fmt.Sprintf(leastSQL, quote(t.Column), t.sql())).Scan(&typ)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return explain(t, "look at the times", err)
	case err == nil && typ != "text":
		return refuse("has values of type " + typ)
	case standard == "" || strings.EqualFold(standard, "null"):
		return nil
	}
	var present bool
	if err := conn.QueryRowContext(ctx, fmt.Sprintf(presentSQL, standard)).Scan(&present); err != nil {
		return explain(t, "look at the default of the time", err)
	}
	if !present || strings.Contains(strings.ToLower(standard), "localtime") {
		return refuse("has the default " + standard)
	}
	return nil
}
