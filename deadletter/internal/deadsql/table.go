package deadsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/schema"
)

// Table is a table of dead letters. It implements deadletter.Table and is safe for concurrent use.
type Table[Tx any] struct {
	*base
	in    func(tx Tx) Conn
	name  string // in SQL
	write string
}

// New returns a Table for the package of that name. invalid is what is wrong with its arguments: the error of every call.
func New[Tx any](pkg string, dialect schema.Dialect, cfg Config, pool Conn, in func(tx Tx) Conn, invalid error) *Table[Tx] {
	b := newBase(pkg, dialect, cfg, pool, invalid)
	name := b.cfg.name(b.cfg.Table)
	return &Table[Tx]{base: b, in: in, name: name, write: b.dialect.writeSQL(name)}
}

// Starts returns the table that middleware.CrashLoop counts in, Config.StartedTable, in the same database.
func (t *Table[Tx]) Starts() deadletter.Starts { return newStarts(t.base) }

// Write implements deadletter.Writer. A message larger than Config.MaxBytes is an error that wraps deadletter.ErrTooLarge, or is written
// without its bytes where Config.LeaveOut says so.
func (t *Table[Tx]) Write(ctx context.Context, tx Tx, rec *deadletter.Record) error {
	if t.invalid != nil {
		return t.invalid
	}
	if rec.Size > t.cfg.MaxBytes {
		if !t.cfg.LeaveOut {
			return fmt.Errorf("%s: %w: it has %d bytes, Config.MaxBytes is %d: raise that, or set Config.LeaveOut", t.pkg, deadletter.ErrTooLarge, rec.Size, t.cfg.MaxBytes)
		}
		without := *rec
		without.Key, without.Value, without.Headers, without.LeftOut = nil, nil, nil, true
		rec = &without
	}
	if _, err := t.in(tx).Exec(ctx, t.write, t.dialect.args(rec)...); err != nil {
		return t.explain("write", err)
	}
	return nil
}

// Take implements deadletter.Taker.
func (t *Table[Tx]) Take(ctx context.Context, tx Tx, id int64) (*deadletter.Record, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	found := fmt.Sprintf("select id from %s where id = %s%s", t.name, t.dialect.param(1), t.dialect.skip)
	text := fmt.Sprintf("delete from %s where %s returning %s", t.name, fmt.Sprintf(t.dialect.chosen, found), t.dialect.columns(true))
	return t.one(ctx, "take", t.in(tx), id, text)
}

// Get implements deadletter.Keeper.
func (t *Table[Tx]) Get(ctx context.Context, id int64) (*deadletter.Record, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	text := fmt.Sprintf("select %s from %s where id = %s", t.dialect.columns(true), t.name, t.dialect.param(1))
	return t.one(ctx, "read", t.pool, id, text)
}

func (t *Table[Tx]) one(ctx context.Context, what string, c Conn, id int64, text string) (*deadletter.Record, error) {
	list, err := t.rows(ctx, what, c, true, text, id)
	if err == nil && len(list) == 0 {
		err = deadletter.ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("dead letter %d: %w", id, err)
	}
	return list[0], nil
}

// List implements deadletter.Keeper.
func (t *Table[Tx]) List(ctx context.Context, filter deadletter.Filter, after int64, limit int) ([]*deadletter.Record, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	c := t.dialect.conditions(filter)
	if after > 0 {
		c.add("id > %s", after)
	}
	text := fmt.Sprintf("select %s from %s%s order by id", t.dialect.columns(false), t.name, c.where())
	text += " limit " + t.dialect.param(c.arg(int64(max(0, limit))))
	return t.rows(ctx, "list", t.pool, false, text, c.args...)
}

func (t *Table[Tx]) rows(ctx context.Context, what string, c Conn, full bool, text string, args ...any) (list []*deadletter.Record, err error) {
	rows, err := c.Query(ctx, text, args...)
	if err != nil {
		return nil, t.explain(what, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		rec, err := scan(rows, full)
		switch {
		case errors.Is(err, deadletter.ErrUnreadable):
			return nil, err
		case err != nil:
			return nil, t.explain(what, err)
		}
		list = append(list, rec)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, t.explain(what, err)
	}
	return list, nil
}

// Count implements deadletter.Keeper.
func (t *Table[Tx]) Count(ctx context.Context, filter deadletter.Filter) (int64, error) {
	if t.invalid != nil {
		return 0, t.invalid
	}
	c := t.dialect.conditions(filter)
	return t.number(ctx, "count", fmt.Sprintf("select count(*) from %s%s", t.name, c.where()), c.args...)
}

// batch is how many rows Discard deletes at once.
const batch = 1000

// Discard implements deadletter.Keeper.
func (t *Table[Tx]) Discard(ctx context.Context, filter deadletter.Filter) (deleted int64, err error) {
	if t.invalid != nil {
		return 0, t.invalid
	}
	c := t.dialect.conditions(filter)
	found := fmt.Sprintf("select id from %s%s limit %d%s", t.name, c.where(), batch, t.dialect.skip)
	text := fmt.Sprintf("delete from %s where %s", t.name, fmt.Sprintf(t.dialect.chosen, found))
	for {
		n, err := t.pool.Exec(ctx, text, c.args...)
		if err != nil {
			return deleted, t.explain("discard", err)
		}
		if deleted += n; n < batch {
			return deleted, nil
		}
	}
}

// Failed implements deadletter.Keeper.
func (t *Table[Tx]) Failed(ctx context.Context, id int64, text string) error {
	if t.invalid != nil {
		return t.invalid
	}
	sql := fmt.Sprintf("update %s set redrives = redrives + 1, redrive_error = %s where id = %s", t.name, t.dialect.param(1), t.dialect.param(2))
	if _, err := t.pool.Exec(ctx, sql, text, id); err != nil {
		return t.explain("count a failed redrive", err)
	}
	return nil
}

// Check implements dedupstore.Checker: it reports what would make Write fail, with the SQL to run.
func (t *Table[Tx]) Check(ctx context.Context) error {
	return t.check(ctx, schema.DeadLetter, othersPrivileges, t.write, t.dialect.args(&deadletter.Record{}))
}

// othersPrivileges are those that only operators need.
func othersPrivileges(f schema.Finding) bool {
	return f.About == "privilege select" || f.About == "privilege update" || f.About == "privilege delete"
}

var _ dedupstore.Checker = (*Table[any])(nil)
