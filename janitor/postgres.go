package janitor

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// postgres is the dialect of PostgreSQL.
type postgres struct{ size int }

// Time-outs of a batch, in the server, so that a janitor that is frozen, or a server that is overloaded, holds up nobody for long.
const (
	lockTimeout      = time.Second      // for the table: behind a migration that waits, consumers would wait as well
	statementTimeout = 30 * time.Second // a batch takes milliseconds; behind this there is no index
	idleTimeout      = 10 * time.Second // beside the pause
)

// lockSQL takes the table. The index is to be used however empty the table seems to the planner: in the order of the index, one batch
// begins where the last one ended.
const lockSQL = `select to_regclass($1::text) is not null,
pg_try_advisory_xact_lock(hashtext('einmal janitor'), hashtext(coalesce(to_regclass($1::text)::oid, 0)::text)),
set_config('lock_timeout', $2::text, true), set_config('statement_timeout', $3::text, true),
set_config('idle_in_transaction_session_timeout', $4::text, true),
set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// deleteSQL takes the table, the column, and the condition. A ctid alone names a row in each partition.
const deleteSQL = `with old as materialized (
	select tableoid as part, ctid as place, %[2]s as at from %[1]s
	where %[2]s < now() - $1::bigint * interval '1 microsecond' and %[2]s >= $2::text::timestamptz%[3]s
	order by %[2]s limit $3::bigint for update skip locked),
gone as (delete from %[1]s t where t.ctid = any(array(select place from old)) and (t.tableoid, t.ctid) in (select part, place from old) returning 1)
select (select count(*) from old), (select count(*) from gone), (select coalesce(max(at)::text, '') from old)`

// batch implements dialect.
func (p postgres) batch(ctx context.Context, conn *sql.Conn, t *Table, from string, pause func() error) (b batch, err error) {
	tx, locked, err := lockTable(ctx, conn, t)
	if err != nil || !locked {
		return batch{busy: !locked}, err
	}
	defer func() { _ = tx.Rollback() }() // after COMMIT it does nothing
	if err := pause(); err != nil {
		return b, err
	}
	if from == "" {
		from = "-infinity"
	}
	condition := ""
	if t.Where != "" {
		condition = " and (" + t.Where + ")"
	}
	text := fmt.Sprintf(deleteSQL, t.sql(), quote(t.Column), condition) //nolint:gosec // names are quoted, the condition is code
	var found int64
	if err := tx.QueryRowContext(ctx, text, t.age().Microseconds(), from, p.size).Scan(&found, &b.deleted, &b.upTo); err != nil {
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
func lockTable(ctx context.Context, conn *sql.Conn, t *Table) (tx *sql.Tx, locked bool, err error) {
	tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, false, explain(t, "begin", err)
	}
	var exists bool
	var unused [5]string
	err = tx.QueryRowContext(ctx, lockSQL, t.sql(), milliseconds(lockTimeout), milliseconds(statementTimeout), milliseconds(maxPause*3/2+idleTimeout)).
		Scan(&exists, &locked, &unused[0], &unused[1], &unused[2], &unused[3], &unused[4])
	switch {
	case err != nil:
		err = explain(t, "lock", err)
	case !exists:
		err = fmt.Errorf("janitor: the table %s does not exist in this database: correct Table.Schema and Table.Name, or create it with package schema", t)
	case locked:
		return tx, true, nil
	}
	_ = tx.Rollback()
	return nil, false, err
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// explain says what the janitor was doing.
func explain(t *Table, step string, err error) error {
	return fmt.Errorf("janitor: %s, %s: %w", t, step, err)
}
