package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// GroupStats implements dedupstore.GroupReporter.
func (s *Store[T]) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	if s.groups == nil {
		return stats, false
	}
	return s.groups().Stats(), true
}

// WatchGroups implements dedupstore.GroupReporter.
func (s *Store[T]) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	if s.groups != nil {
		s.groups().Watch(watcher, f)
	}
}

// groups runs groups of calls for a Store. It implements gather.Backend.
type groups[T Tx] struct {
	store *Store[T]
	many  atomic.Pointer[record.Many] // known after the first group; never set where keys are recorded one by one
}

// inGroup marks the context of a function, whose own calls of Once cannot wait for its group.
type inGroup struct{ store any }

// nested reports whether ctx is that of a function that runs in a group of the store.
func (s *Store[T]) nested(ctx context.Context) bool { return ctx.Value(inGroup{s}) != nil }

// inside marks ctx as that of such a function.
func (s *Store[T]) inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, inGroup{s}, true)
}

// Group implements dedupstore.Grouper.
func (s *Store[T]) Group() int { return s.cfg.Group }

// Waiting is how many calls wait for a group.
func (s *Store[T]) Waiting() int { return s.groups().Waiting() }

// Once implements gather.Backend.
func (g *groups[T]) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, T) error) (bool, error) {
	return g.store.alone(ctx, key, fn)
}

// Waiting implements gather.Backend.
func (g *groups[T]) Waiting(ctx context.Context) error { return g.store.dialect.Waiting(ctx) }

// Fault implements gather.Backend.
func (g *groups[T]) Fault(err error) gather.Fault { return record.FaultOf(err) }

// Begin implements gather.Backend.
func (g *groups[T]) Begin(ctx context.Context, keys []dedupstore.Key) (gather.Transaction[T], []bool, error) {
	for {
		tx, fresh, err := g.begin(ctx, keys)
		if !errors.Is(err, record.ErrChanged) {
			return tx, fresh, err
		}
	}
}

// begin makes the attempt on one connection, which it keeps if it succeeds.
func (g *groups[T]) begin(ctx context.Context, keys []dedupstore.Key) (gather.Transaction[T], []bool, error) {
	s := g.store
	c, err := s.enter(ctx)
	if err != nil {
		return nil, nil, record.GroupError(err)
	}
	tx := &groupTx[T]{call: c}
	if err := s.dialect.Locate(ctx, c.ask); err != nil {
		err = c.giveUp(err)
		c.close()
		return nil, nil, record.GroupError(err)
	}
	fresh, err := g.record(ctx, tx, keys)
	if err == nil && c.changed() {
		c.close()
		return nil, nil, record.ErrChanged
	}
	if err != nil {
		c.rollback()
		err = s.recordError(ctx, c, keys[0], err)
		c.close()
		return nil, nil, record.GroupError(err)
	}
	return tx, fresh, nil
}

func (g *groups[T]) record(ctx context.Context, tx *groupTx[T], keys []dedupstore.Key) ([]bool, error) {
	form, err := g.store.form(ctx, tx.call)
	if err != nil {
		return nil, err
	}
	postgres, ok := g.store.dialect.(*record.Postgres)
	if !ok {
		return tx.oneByOne(ctx, form, keys)
	}
	if tx.many, err = g.statements(ctx, tx.call, postgres, form); err != nil {
		return nil, err
	}
	return tx.together(ctx, form, keys)
}

// statements finds out at the first group which types the table's key has.
func (g *groups[T]) statements(ctx context.Context, c *call[T], dialect *record.Postgres,
	form record.Form) (*record.Many, error) {
	if many := g.many.Load(); many != nil {
		return many, nil
	}
	types, err := c.ask(ctx, dialect.KeyTypes())
	if err != nil {
		return nil, err
	}
	event, consumer, _ := strings.Cut(types, "\t")
	many := dialect.Many(form, event, consumer)
	g.many.Store(many)
	return many, nil
}

// groupTx is the transaction of a group. It implements gather.Transaction.
type groupTx[T Tx] struct {
	call *call[T]
	many *record.Many // nil where keys are recorded one by one
	xid  string       // the transaction's id, if it is known
}

// oneByOne records keys where there is no network between the statements.
func (tx *groupTx[T]) oneByOne(ctx context.Context, form record.Form, keys []dedupstore.Key) ([]bool, error) {
	if err := tx.call.beginTx(ctx, form); err != nil {
		return nil, err
	}
	fresh := make([]bool, len(keys))
	for i, key := range keys {
		outcome, err := tx.call.record(ctx, key)
		if err != nil {
			return nil, err
		}
		if outcome == record.Silent {
			seen, err := tx.there(ctx, key)
			if err != nil {
				return nil, err
			}
			if !seen {
				return nil, record.ErrSilent
			}
		}
		fresh[i] = outcome == record.Inserted
	}
	return fresh, nil
}

// there looks for a record that the database did not speak of.
func (tx *groupTx[T]) there(ctx context.Context, key dedupstore.Key) (yes bool, err error) {
	var answer string
	err = tx.sql().QueryRowContext(ctx, tx.call.texts.Look, key.Event, key.Consumer).Scan(&answer)
	return answer == "true", err
}

// together records keys by one statement.
func (tx *groupTx[T]) together(ctx context.Context, form record.Form, keys []dedupstore.Key) ([]bool, error) {
	if err := tx.call.beginTx(ctx, form); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, tx.call.store.cfg.RecordTimeout())
	defer stop()
	if _, err := tx.sql().ExecContext(ctx, tx.many.Guard); err != nil {
		return nil, err
	}
	pairs, answers := record.Pairs(keys), record.NewAnswers(len(keys))
	for _, text := range []string{tx.many.Record, tx.many.Seen} {
		if text == "" {
			continue
		}
		if err := note(ctx, tx.sql(), text, pairs, answers); err != nil {
			return nil, err
		}
	}
	if err := answers.Err(); err != nil {
		return nil, err
	}
	if tx.many.Xid != "" {
		if err := tx.sql().QueryRowContext(ctx, tx.many.Xid).Scan(&tx.xid); err != nil {
			return nil, err
		}
	}
	err := tx.sql().QueryRowContext(ctx, tx.many.Restore).Scan(&tx.call.session)
	return answers.Fresh, err
}

func note(ctx context.Context, tx *sql.Tx, text, pairs string, answers *record.Answers) error {
	rows, err := tx.QueryContext(ctx, text, pairs)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var place int
		var inserted bool
		if err := rows.Scan(&place, &inserted); err != nil {
			return err
		}
		answers.Note(place, inserted)
	}
	return rows.Err()
}

func (tx *groupTx[T]) sql() *sql.Tx { return tx.call.sql() }

// Run implements gather.Transaction.
func (tx *groupTx[T]) Run(ctx context.Context, _ int, fn func(context.Context, T) error) error {
	if err := tx.call.mark(ctx); err != nil {
		return err
	}
	return tx.call.run(tx.call.store.inside(ctx), fn)
}

// Commit implements gather.Transaction.
func (tx *groupTx[T]) Commit(back []dedupstore.Key) error {
	if err := tx.takeBack(back); err != nil {
		return fmt.Errorf("%w: take back the records of events that have not run: %w", errors.New("rolled back"), err)
	}
	return tx.call.commit()
}

func (tx *groupTx[T]) takeBack(keys []dedupstore.Key) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), tx.call.store.cfg.CommitTimeout)
	defer stop()
	if tx.many != nil {
		return deleted(len(keys))(tx.sql().ExecContext(ctx, tx.many.TakeBack, record.Pairs(keys)))
	}
	for _, key := range keys {
		if err := deleted(1)(tx.sql().ExecContext(ctx, tx.call.texts.TakeBack, key.Event, key.Consumer)); err != nil {
			return err
		}
	}
	return nil
}

// deleted expects so many rows.
func deleted(want int) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(want) {
			return errors.Join(fmt.Errorf("%d of %d rows were deleted", n, want), err)
		}
		return nil
	}
}

// Ended implements gather.Transaction. It has a connection of its own: database/sql may still take the transaction for
// open.
func (tx *groupTx[T]) Ended(keys []dedupstore.Key) {
	s := tx.call.store
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.CommitTimeout)
	defer stop()
	tx.call.rollback()
	if tx.many != nil && tx.xid != "" && len(keys) > 0 {
		if _, err := s.driver.DB.ExecContext(ctx, tx.many.TakeBackOf, record.Pairs(keys), tx.xid); err != nil {
			s.cfg.Logger.Error("einmal: a function ended the transaction of a group, and the records of events that have not run could not be taken back",
				slog.Int("events", len(keys)), slog.Any("error", err))
		}
	}
}

// Rollback implements gather.Transaction.
func (tx *groupTx[T]) Rollback() { tx.call.close() }

// Abandon implements gather.Transaction: database/sql rolls back when the context of the transaction ends.
func (tx *groupTx[T]) Abandon() { tx.call.cancel() }
