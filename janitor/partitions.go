package janitor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// partition is one of a table.
type partition struct {
	name    string // as it stands in SQL
	bounds  string // as PostgreSQL shows them
	pending bool   // it is being detached, or was when that was cut short
	span    span
	dated   bool // span is known
}

func (p partition) isDefault() bool { return p.bounds == "DEFAULT" }

// keeper looks after the partitions of one table.
type keeper struct {
	conn *sql.Conn
	t    *Table
	r    *Report
	mark string    // the comment on a partition that is to be dropped
	now  time.Time // by the server's clock: that of this process may be off, and what it would drop is lost
}

// maintenanceTimeout bounds one change of the table. DETACH CONCURRENTLY waits for transactions that use the table,
// without keeping others waiting; cut short, it is finished by the next sweep.
const maintenanceTimeout = 2 * time.Minute

// holdSQL frees the lock of a janitor that is frozen: without the lock, two of them would get in each other's way, no
// more. It has no parameters, so it closes what the statement before it left open: a portal, with a snapshot for which
// FINALIZE would wait.
const holdSQL = "set local idle_in_transaction_session_timeout = '10min'"

// sweepPartitions holds the lock in a transaction of a connection of its own, because DETACH CONCURRENTLY cannot be in
// one.
func sweepPartitions(ctx context.Context, db *sql.DB, t *Table, r *Report) (err error) {
	if db.Stats().MaxOpenConnections == 1 {
		return fmt.Errorf("janitor: %s: Partitions needs two connections, the pool has one: raise SetMaxOpenConns", t)
	}
	holder, err := db.Conn(ctx)
	if err != nil {
		return explain(t, "connect", err)
	}
	defer func() { release(ctx, holder, err) }()
	tx, _, locked, err := lockTable(ctx, holder, t)
	if r.Busy = err == nil && !locked; err != nil || !locked {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, holdSQL); err != nil {
		return explain(t, "lock", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return explain(t, "connect", err)
	}
	defer func() { release(ctx, conn, err) }()
	k := &keeper{conn: conn, t: t, r: r}
	return k.sweep(ctx)
}

func (k *keeper) sweep(ctx context.Context) error {
	if err := k.examine(ctx); err != nil {
		return err
	}
	if err := k.finish(ctx); err != nil {
		return err
	}
	list, err := k.list(ctx)
	if err != nil {
		return err
	}
	// The next ones come first: without them consumers stop, without room on the disk later.
	return errors.Join(k.create(ctx, list), k.drop(ctx, list))
}

// partitionKeySQL asks how the table is partitioned, and what time it is.
const partitionKeySQL = `select c.oid::text, coalesce(p.partstrat::text, ''), coalesce(p.partnatts, 0),
coalesce(a.atttypid = 'uuid'::regtype or l.collname in ('C', 'POSIX') and a.attnum is not null, false),
(extract(epoch from clock_timestamp()) * 1000)::bigint
from pg_class c left join pg_partitioned_table p on p.partrelid = c.oid
left join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0]
left join pg_collation l on l.oid = p.partcollation[0]
where c.oid = to_regclass($1::text)`

// examine refuses a table whose partitions are not ranges of ids, and looks at the server's clock.
func (k *keeper) examine(ctx context.Context) error {
	var oid, strategy string
	var columns int
	var ordered bool
	var milliseconds int64
	if err := k.conn.QueryRowContext(ctx, partitionKeySQL, k.t.sql()).Scan(&oid, &strategy, &columns, &ordered,
		&milliseconds); err != nil {
		return explain(k.t, "look at the table", err)
	}
	if strategy != "r" || columns != 1 || !ordered {
		return fmt.Errorf("janitor: %s is not partitioned by range of one column of type uuid, or text collate \"C\": leave out Table.Partitions, so that rows are deleted", k.t)
	}
	k.now = time.UnixMilli(milliseconds).UTC()
	k.mark = "einmal janitor: was a partition of " + oid + ", to be dropped"
	return nil
}

const partitionsSQL = `select quote_ident(n.nspname) || '.' || quote_ident(c.relname), pg_get_expr(c.relpartbound, c.oid), i.inhdetachpending
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
where i.inhparent = to_regclass($1::text)`

func (k *keeper) list(ctx context.Context) ([]partition, error) {
	rows, err := k.conn.QueryContext(ctx, partitionsSQL, k.t.sql())
	if err != nil {
		return nil, explain(k.t, "look for partitions", err)
	}
	defer rows.Close()
	var list []partition
	for rows.Next() {
		var p partition
		if err := rows.Scan(&p.name, &p.bounds, &p.pending); err != nil {
			return nil, explain(k.t, "look for partitions", err)
		}
		p.span, p.dated = spanOf(p.bounds)
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, explain(k.t, "look for partitions", err)
	}
	return list, nil
}

const leftoversSQL = `select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
from pg_description d join pg_class c on c.oid = d.objoid join pg_namespace n on n.oid = c.relnamespace
where d.classoid = 'pg_class'::regclass and d.objsubid = 0 and d.description = $1::text and not c.relispartition limit 1`

// finish ends what an earlier sweep, of any process, was kept from ending.
func (k *keeper) finish(ctx context.Context) error {
	list, err := k.list(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.pending {
			if err := k.exec(ctx, "finish the detaching of "+p.name, fmt.Sprintf("alter table %s detach partition %s finalize",
				k.t.sql(), p.name)); err != nil {
				return err
			}
		}
	}
	for {
		var name string
		err := k.conn.QueryRowContext(ctx, leftoversSQL, k.mark).Scan(&name)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return explain(k.t, "look for detached partitions", err)
		}
		if err := k.dropTable(ctx, name); err != nil {
			return err
		}
	}
}

// create attaches new partitions. Creating them as partitions would wait for all transactions that use the table, and
// keep others waiting meanwhile.
func (k *keeper) create(ctx context.Context, list []partition) error {
	var spans []span
	for _, p := range list {
		switch {
		case p.dated:
			spans = append(spans, p.span)
		case p.isDefault():
		default: // up to MAXVALUE, or in a form that is not known
			return nil
		}
	}
	for _, s := range missing(spans, k.now, k.t.age(), k.t.Partitions.Width, k.t.Partitions.Ahead) {
		name := k.newName(s)
		if err := k.attach(ctx, name, s); err != nil {
			return err
		}
		k.r.Created = append(k.r.Created, name)
	}
	return nil
}

func (k *keeper) attach(ctx context.Context, name string, s span) error {
	ctx, stop := context.WithTimeout(ctx, maintenanceTimeout)
	defer stop()
	tx, err := k.conn.BeginTx(ctx, nil)
	if err != nil {
		return explain(k.t, "begin", err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, text := range []string{
		"select set_config('lock_timeout', '" + milliseconds(lockTimeout) + "', true)",
		fmt.Sprintf("create table %s (like %s including all)", name, k.t.sql()),
		fmt.Sprintf("alter table %s attach partition %s for values from ('%s') to ('%s')", k.t.sql(), name, floor(s.from),
			floor(s.to)),
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return explain(k.t, "create the partition "+name, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return explain(k.t, "create the partition "+name, err)
	}
	return nil
}

// newName names a partition by the time of its first id, within PostgreSQL's 63 bytes.
func (k *keeper) newName(s span) string {
	const most = 63
	suffix := s.from.UTC().Format("_20060102_150405")
	if ms := s.from.UnixMilli() % 1000; ms != 0 {
		suffix += fmt.Sprintf("_%03d", ms)
	}
	return k.t.beside(quote(strings.ToValidUTF8(k.t.Name[:min(len(k.t.Name), most-len(suffix))], "") + suffix))
}

// drop drops the partitions of which all ids are old.
func (k *keeper) drop(ctx context.Context, list []partition) error {
	oldest := k.now.Add(-k.t.age())
	var old []partition
	for _, p := range list {
		if p.dated && p.span.to.Before(oldest) {
			old = append(old, p)
		}
	}
	for _, p := range list {
		if p.isDefault() && len(old) > 0 {
			return fmt.Errorf("janitor: %s has the default partition %s, which would take the events of %d partitions that are old enough to be dropped, "+
				"and let them take effect again: move its rows to partitions of their own, and detach it", k.t, p.name, len(old))
		}
	}
	for _, p := range old {
		if err := k.dropPartition(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// dropPartition marks the partition first, so that it is found again if this ends between two of the steps.
func (k *keeper) dropPartition(ctx context.Context, p partition) error {
	if err := k.exec(ctx, "mark the partition "+p.name, fmt.Sprintf("comment on table %s is '%s'", p.name,
		k.mark)); err != nil {
		return err
	}
	if err := k.exec(ctx, "detach the partition "+p.name, fmt.Sprintf("alter table %s detach partition %s concurrently",
		k.t.sql(), p.name)); err != nil {
		return err
	}
	return k.dropTable(ctx, p.name)
}

func (k *keeper) dropTable(ctx context.Context, name string) error {
	if err := k.exec(ctx, "drop the detached partition "+name, "drop table "+name); err != nil {
		return err
	}
	k.r.Dropped = append(k.r.Dropped, name)
	return nil
}

func (k *keeper) exec(ctx context.Context, step, text string) error {
	ctx, stop := context.WithTimeout(ctx, maintenanceTimeout)
	defer stop()
	if _, err := k.conn.ExecContext(ctx, text); err != nil {
		return explain(k.t, step, err)
	}
	return nil
}
