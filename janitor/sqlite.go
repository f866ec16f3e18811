package janitor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// sqlite is the dialect of SQLite.
type sqlite struct{ size int }

// keySQL finds the columns of the primary key, which a table without rowid has instead of one.
const keySQL = `select name from pragma_table_info(?1) where pk > 0 order by pk`

// oldSQL takes the columns to select, the table, the column of times, and the condition.
const oldSQL = `select %[1]s from %[2]s where %[3]s < strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now', ?1) and %[3]s >= ?2%[4]s order by %[3]s limit ?3`

// batch implements dialect. It is one statement, which rolls back by itself if it fails.
func (s sqlite) batch(ctx context.Context, conn *sql.Conn, t *Table, from string, pause func() error) (b batch, err error) {
	if err := pause(); err != nil {
		return b, err
	}
	key, err := keyOf(ctx, conn, t)
	if err != nil {
		return b, err
	}
	condition := ""
	if t.Where != "" {
		condition = " and (" + t.Where + ")"
	}
	old := fmt.Sprintf(oldSQL, key, t.sql(), quote(t.Column), condition)
	text := fmt.Sprintf("delete from %s where (%s) in (%s) returning %s", t.sql(), key, old, quote(t.Column)) //nolint:gosec // names are quoted, the condition is code
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

// keyOf returns the columns that name a row, as they stand in SQL.
func keyOf(ctx context.Context, conn *sql.Conn, t *Table) (string, error) {
	rows, err := conn.QueryContext(ctx, keySQL, t.Name)
	if err != nil {
		return "", explain(t, "look at the table", err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", explain(t, "look at the table", err)
		}
		names = append(names, quote(name))
	}
	if err := rows.Err(); err != nil {
		return "", explain(t, "look at the table", err)
	}
	if len(names) == 0 {
		return "rowid", nil // of a table without a primary key; one that is not there fails then
	}
	return strings.Join(names, ", "), nil
}
