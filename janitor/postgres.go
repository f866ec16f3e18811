package janitor

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// postgres is the dialect of PostgreSQL.
type postgres struct{ size int }

// Time-outs of a batch, in the server, so that a janitor that is frozen, or a server that is overloaded, holds up
// nobody for long.
const (
	lockTimeout      = time.Second      // for the table: behind a migration that waits, consumers would wait as well
	statementTimeout = 30 * time.Second // a batch takes milliseconds; behind this there is no index
	idleTimeout      = 10 * time.Second // beside the pause
)

// lockSQL takes the table, and tells the type of its column, or of what a domain stands on. The form of a date is set
// so that the time of the last row comes back as it went, behind any pooler. The index is to be used however empty the
// table seems to the planner: in the order of the index, one batch begins where the last one ended.
const lockSQL = `select to_regclass($1::text) is not null,
coalesce((select format_type(coalesce(nullif(y.typbasetype, 0), y.oid), null) from pg_attribute a join pg_type y on y.oid = a.atttypid
	where a.attrelid = to_regclass($1::text) and a.attname = $5::text and a.attnum > 0 and not a.attisdropped), ''),
pg_try_advisory_xact_lock(hashtext('einmal janitor'), hashtext(coalesce(to_regclass($1::text)::oid, 0)::text)),
set_config('lock_timeout', $2::text, true), set_config('statement_timeout', $3::text, true),
set_config('idle_in_transaction_session_timeout', $4::text, true),
set_config('DateStyle', 'ISO', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// deleteSQL takes the table, the column, the condition, the column's type, and what the time is in that type. A ctid
// alone names a row in each partition.
const deleteSQL = `with old as materialized (
	select tableoid as part, ctid as place, %[2]s as at from %[1]s
	where %[2]s < %[5]s - $1::bigint * interval '1 microsecond' and %[2]s >= $2::text::%[4]s%[3]s
	order by %[2]s limit $3::bigint for update skip locked),
gone as (delete from %[1]s t where t.ctid = any(array(select place from old)) and (t.tableoid, t.ctid) in (select part, place from old) returning 1)
select (select count(*) from old), (select count(*) from gone), (select coalesce(max(at)::text, '') from old)`

// timeType is a type by which the age of a row can be told.
type timeType struct {
	name  string
	now   string        // in SQL
	apart time.Duration // how far a value may be from what now says
}

// timeTypes has no type by which an age would be guessed: of a date, it is wrong by a day.
//
// A time without zone was written in the zone of some session. None is more than 16 hours off UTC, so a row that is
// kept for 16 hours longer is never deleted too early, whatever the zones of those who write and delete are.
var timeTypes = []timeType{
	{name: "timestamp with time zone", now: "now()"},
	{name: "timestamp without time zone", now: "(now() at time zone 'UTC')", apart: 16 * time.Hour},
}

func timeTypeOf(t *Table, name string) (timeType, error) {
	for _, known := range timeTypes {
		if known.name == name {
			return known, nil
		}
	}
	if name == "" {
		return timeType{}, fmt.Errorf("janitor: the table %s has no column %s: correct Table.Column", t, quote(t.Column))
	}
	return timeType{}, fmt.Errorf("janitor: the column %s of %s is of type %s, which does not tell how old a row is: nothing is deleted; make it timestamptz", quote(t.Column), t, name)
}

// delete is deleteSQL for a table and the type of its column.
func (t *Table) delete(of timeType) string {
	condition := ""
	if t.Where != "" {
		condition = " and (" + t.Where + ")"
	}
	return fmt.Sprintf(deleteSQL, t.sql(), quote(t.Column), condition, of.name, of.now)
}

// batch implements dialect.
func (p postgres) batch(ctx context.Context, conn *sql.Conn, t *Table, from string, pause func() error) (b batch,
	err error) {
	tx, typ, locked, err := lockTable(ctx, conn, t)
	if err != nil || !locked {
		return batch{busy: !locked}, err
	}
	defer func() { _ = tx.Rollback() }() // after COMMIT it does nothing
	of, err := timeTypeOf(t, typ)
	if err != nil {
		return b, err
	}
	if err := pause(); err != nil {
		return b, err
	}
	if from == "" {
		from = "-infinity"
	}
	var found int64
	row := tx.QueryRowContext(ctx, t.delete(of), (t.age() + of.apart).Microseconds(), from, p.size)
	if err := row.Scan(&found, &b.deleted, &b.upTo); err != nil {
		return b, explain(t, "delete", err)
	}
	if err := tx.Commit(); err != nil {
		b.deleted = 0 // as far as is known
		return b, explain(t, "commit", err)
	}
	b.full = found == int64(p.size) && b.deleted > 0
	return b, nil
}

// lockTable begins a transaction that holds the table's lock against other janitors. There is none without the lock.
// typ is the type of the column of times, if there is one.
func lockTable(ctx context.Context, conn *sql.Conn, t *Table) (tx *sql.Tx, typ string, locked bool, err error) {
	if err := t.find(ctx, conn); err != nil {
		return nil, "", false, err
	}
	tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, "", false, explain(t, "begin", err)
	}
	var exists bool
	var unused [6]string
	idle := milliseconds(maxPause*3/2 + idleTimeout)
	err = tx.QueryRowContext(ctx, lockSQL, t.sql(), milliseconds(lockTimeout), milliseconds(statementTimeout), idle,
		t.Column).
		Scan(&exists, &typ, &locked, &unused[0], &unused[1], &unused[2], &unused[3], &unused[4], &unused[5])
	switch {
	case err != nil:
		err = explain(t, "lock", err)
	case !exists:
		err = missingTable{t.String()}
	case locked:
		return tx, typ, true, nil
	}
	_ = tx.Rollback()
	return nil, "", false, err
}

// missingTable is the error of a table that is not there.
type missingTable struct{ name string }

func (m missingTable) Error() string {
	return "janitor: the table " + m.name + " does not exist in this database: correct Table.Schema and Table.Name, or create it with package schema"
}

// SQLState is the code with which the server refuses it: another session may find the table.
func (missingTable) SQLState() string { return "42P01" }

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// explain says what the janitor was doing.
func explain(t *Table, step string, err error) error {
	return fmt.Errorf("janitor: %s, %s: %w", t, step, err)
}
