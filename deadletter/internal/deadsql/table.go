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
	in func(tx Tx) Conn
}

// New returns a Table for the package of that name. invalid is what is wrong with its arguments: the error of every
// call.
func New[Tx any](pkg string, dialect schema.Dialect, cfg Config, pool Conn, in func(tx Tx) Conn,
	invalid error) *Table[Tx] {
	return &Table[Tx]{base: newBase(pkg, dialect, cfg, pool, invalid), in: in}
}

// Starts returns the table that middleware.CrashLoop counts in, Config.StartedTable, in the same database.
func (t *Table[Tx]) Starts() deadletter.Starts { return &starts{t.base} }

// Write implements deadletter.Writer. A message larger than Config.MaxBytes is an error that wraps
// deadletter.ErrTooLarge, or is written without its bytes, but for its key, where Config.LeaveOut says so.
func (t *Table[Tx]) Write(ctx context.Context, tx Tx, rec *deadletter.Record) error {
	if t.invalid != nil {
		return t.invalid
	}
	if rec.Size > t.cfg.MaxBytes {
		if !t.cfg.LeaveOut {
			return fmt.Errorf("%s: %w: it has %d bytes, Config.MaxBytes is %d: raise that, or set Config.LeaveOut", t.pkg,
				deadletter.ErrTooLarge, rec.Size, t.cfg.MaxBytes)
		}
		without := *rec
		without.Value, without.Headers, without.LeftOut = nil, nil, true
		if int64(len(rec.Key)) > t.cfg.MaxBytes {
			without.Key = nil // the order of its key is lost
		}
		rec = &without
	}
	name, err := t.name(ctx, t.in(tx), t.cfg.Table)
	if err != nil {
		return err
	}
	n, err := t.in(tx).Exec(ctx, t.dialect.writeSQL(name), t.dialect.args(rec)...)
	switch {
	case err != nil:
		return t.explain("write", err)
	case n != 1:
		return t.swallowed("write", t.cfg.Table)
	}
	return nil
}

// named calls f with the table's name, as it stands in SQL, unless something is wrong with the table.
func (t *Table[Tx]) named(ctx context.Context, c func() Conn, f func(name string) error) error {
	if t.invalid != nil {
		return t.invalid
	}
	name, err := t.name(ctx, c(), t.cfg.Table)
	if err != nil {
		return err
	}
	return f(name)
}

// pooled is the pool, for named.
func (t *Table[Tx]) pooled() Conn { return t.pool }

// Take implements deadletter.Taker.
func (t *Table[Tx]) Take(ctx context.Context, tx Tx, id int64) (rec *deadletter.Record, err error) {
	err = t.named(ctx, func() Conn { return t.in(tx) }, func(name string) (err error) {
		found := fmt.Sprintf("select id from %s where id = %s%s", name, t.dialect.param(1), t.dialect.skip)
		text := fmt.Sprintf("delete from %s where %s returning %s", name, fmt.Sprintf(t.dialect.chosen, found),
			t.dialect.columns(true))
		rec, err = t.one(ctx, "take", t.in(tx), id, text)
		if !errors.Is(err, deadletter.ErrTaken) {
			return err
		}
		locked, asked := t.there(ctx, t.in(tx), found, id)
		if asked != nil || !locked {
			return errors.Join(asked, err)
		}
		// It may have been free since. Now nobody else has it.
		if rec, err = t.one(ctx, "take", t.in(tx), id, text); errors.Is(err, deadletter.ErrTaken) {
			return t.swallowed("take", t.cfg.Table)
		}
		return err
	})
	return rec, err
}

// there reports whether a query finds a row.
func (t *Table[Tx]) there(ctx context.Context, c Conn, text string, args ...any) (yes bool, err error) {
	rows, err := c.Query(ctx, text, args...)
	if err != nil {
		return false, t.explain("look for the row", err)
	}
	defer func() { _ = rows.Close() }()
	yes = rows.Next()
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return false, t.explain("look for the row", err)
	}
	return yes, nil
}

// Get implements deadletter.Keeper.
func (t *Table[Tx]) Get(ctx context.Context, id int64) (rec *deadletter.Record, err error) {
	err = t.named(ctx, t.pooled, func(name string) (err error) {
		text := fmt.Sprintf("select %s from %s where id = %s", t.dialect.columns(true), name, t.dialect.param(1))
		rec, err = t.one(ctx, "read", t.pool, id, text)
		return err
	})
	return rec, err
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
func (t *Table[Tx]) List(ctx context.Context, filter deadletter.Filter, after int64,
	limit int) (list []*deadletter.Record, err error) {
	err = t.named(ctx, t.pooled, func(name string) (err error) {
		c := t.dialect.conditions(filter)
		if after > 0 {
			c.add("id > %s", after)
		}
		text := fmt.Sprintf("select %s from %s%s order by id", t.dialect.columns(false), name, c.where())
		text += " limit " + t.dialect.param(c.arg(int64(max(0, limit))))
		list, err = t.rows(ctx, "list", t.pool, false, text, c.args...)
		return err
	})
	return list, err
}

func (t *Table[Tx]) rows(ctx context.Context, what string, c Conn, full bool, text string,
	args ...any) (list []*deadletter.Record, err error) {
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
func (t *Table[Tx]) Count(ctx context.Context, filter deadletter.Filter) (n int64, err error) {
	err = t.named(ctx, t.pooled, func(name string) (err error) {
		c := t.dialect.conditions(filter)
		n, err = t.number(ctx, "count", fmt.Sprintf("select count(*) from %s%s", name, c.where()), c.args...)
		return err
	})
	return n, err
}

// batch is how many rows Discard deletes at once.
const batch = 1000

// Discard implements deadletter.Keeper.
func (t *Table[Tx]) Discard(ctx context.Context, filter deadletter.Filter) (deleted int64, err error) {
	err = t.named(ctx, t.pooled, func(name string) error {
		c := t.dialect.conditions(filter)
		found := fmt.Sprintf("select id from %s%s limit %d%s", name, c.where(), batch, t.dialect.skip)
		text := fmt.Sprintf("delete from %s where %s", name, fmt.Sprintf(t.dialect.chosen, found))
		for {
			n, err := t.pool.Exec(ctx, text, c.args...)
			if err != nil {
				return t.explain("discard", err)
			}
			if deleted += n; n < batch {
				return nil
			}
		}
	})
	return deleted, err
}

// Failed implements deadletter.Keeper.
func (t *Table[Tx]) Failed(ctx context.Context, id int64, text string) error {
	return t.named(ctx, t.pooled, func(name string) error {
		sql := fmt.Sprintf("update %s set redrives = redrives + 1, redrive_error = %s where id = %s", name,
			t.dialect.param(1), t.dialect.param(2))
		if _, err := t.pool.Exec(ctx, sql, text, id); err != nil {
			return t.explain("count a failed redrive", err)
		}
		return nil
	})
}

// Check implements dedupstore.Checker: it reports what would make Write fail, with the SQL to run.
func (t *Table[Tx]) Check(ctx context.Context) error {
	write := func() (string, error) {
		name, err := t.name(ctx, t.pool, t.cfg.Table)
		return t.dialect.writeSQL(name), err
	}
	return t.check(ctx, schema.DeadLetter, t.cfg.Table, othersPrivileges, write, t.dialect.args(&deadletter.Record{}))
}

// othersPrivileges are those that only operators need.
func othersPrivileges(f schema.Finding) bool {
	return f.About == "privilege select" || f.About == "privilege update" || f.About == "privilege delete"
}

var _ dedupstore.Checker = (*Table[any])(nil)
