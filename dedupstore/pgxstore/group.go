package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// groups runs groups of calls for a Store. It implements gather.Backend.
type groups struct {
	store *Store
	many  atomic.Pointer[record.Many] // known after the first group
}

var _ gather.Backend[pgx.Tx] = (*groups)(nil)

// inGroup marks the context of a function, whose own calls of Once cannot wait for its group.
type inGroup struct{ store *Store }

// nested reports whether ctx is that of a function that runs in a group of the store.
func (s *Store) nested(ctx context.Context) bool { return ctx.Value(inGroup{s}) != nil }

// inside marks ctx as that of such a function.
func (s *Store) inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, inGroup{s}, true)
}

// Group implements dedupstore.Grouper.
func (s *Store) Group() int { return s.cfg.Group }

// GroupStats implements dedupstore.GroupReporter.
func (s *Store) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	if s.groups == nil {
		return stats, false
	}
	return s.groups.Stats(), true
}

// WatchGroups implements dedupstore.GroupReporter.
func (s *Store) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	if s.groups != nil {
		s.groups.Watch(watcher, f)
	}
}

// Once implements gather.Backend.
func (g *groups) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, pgx.Tx) error) (bool, error) {
	return g.store.alone(ctx, key, g.store.runAndCommit(fn))
}

// Waiting implements gather.Backend.
func (g *groups) Waiting(ctx context.Context) error { return g.store.sql.Waiting(ctx) }

// Fault implements gather.Backend.
func (g *groups) Fault(err error) gather.Fault { return record.FaultOf(err) }

// Begin implements gather.Backend. BEGIN, the time-outs and the records are one round trip.
func (g *groups) Begin(ctx context.Context, keys []dedupstore.Key) (gather.Transaction[pgx.Tx], []bool, error) {
	tx, fresh, err := g.enter(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	return tx, fresh, nil
}

// enter begins a transaction when there is a place for it.
func (g *groups) enter(ctx context.Context, keys []dedupstore.Key) (*groupTx, []bool, error) {
	s := g.store
	if err := s.places.Enter(ctx); err != nil {
		return nil, nil, record.GroupError(s.sql.Place(err))
	}
	for {
		tx, fresh, err := g.begin(ctx, keys)
		if errors.Is(err, record.ErrChanged) {
			continue
		}
		if err != nil {
			s.places.Leave()
			return nil, nil, record.GroupError(err)
		}
		return tx, fresh, nil
	}
}

// begin makes the attempt on one connection, which it keeps if it succeeds.
func (g *groups) begin(ctx context.Context, keys []dedupstore.Key) (_ *groupTx, fresh []bool, err error) {
	s := g.store
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			conn.Release()
		}
	}()
	if err := s.sql.Locate(ctx, query(conn.Conn())); err != nil {
		return nil, nil, s.giveUp(ctx, conn.Conn(), err)
	}
	many, err := g.statements(ctx, conn.Conn())
	if err != nil {
		return nil, nil, s.recordError(ctx, conn.Conn(), keys[0], err)
	}
	tx := &groupTx{store: s, conn: conn, many: many}
	fresh, err = tx.record(ctx, keys)
	if s.changed(ctx, conn.Conn(), tx.began, err) {
		return nil, nil, record.ErrChanged
	}
	if err != nil {
		s.rollback(ctx, tx.tx)
		return nil, nil, s.recordError(ctx, conn.Conn(), keys[0], err)
	}
	return tx, fresh, nil
}

// statements finds out at the first group how the table is written and which types its key has.
func (g *groups) statements(ctx context.Context, conn *pgx.Conn) (*record.Many, error) {
	if many := g.many.Load(); many != nil {
		return many, nil
	}
	form, err := g.store.form(ctx, conn)
	if err != nil {
		return nil, err
	}
	limited := g.store.records.start(ctx)
	defer g.store.records.stop(limited)
	var types string
	if err := conn.QueryRow(limited, g.store.sql.KeyTypes()).Scan(&types); err != nil {
		return nil, err
	}
	event, consumer, _ := strings.Cut(types, "\t")
	many := g.store.sql.Many(form, event, consumer)
	g.many.Store(many)
	return many, nil
}

// groupTx is the transaction of a group. It implements gather.Transaction.
type groupTx struct {
	store *Store
	conn  *pgxpool.Conn
	tx    pgx.Tx
	many  *record.Many
	xid   string // the transaction's id, if it is known
	began record.Session
	ran   int // functions
	ended sync.Once
}

// record begins the transaction and records the keys, in one round trip.
func (tx *groupTx) record(ctx context.Context, keys []dedupstore.Key) (fresh []bool, err error) {
	limited := tx.store.records.start(ctx)
	defer tx.store.records.stop(limited)
	pairs, answers := record.Pairs(keys), record.NewAnswers(len(keys))
	note := func(rows pgx.Rows) error {
		var place int
		var inserted bool
		_, err := pgx.ForEachRow(rows, []any{&place, &inserted}, func() error {
			answers.Note(place, inserted)
			return nil
		})
		return err
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue(tx.many.Guard)
	batch.Queue(tx.many.Record, pairs).Query(note)
	if tx.many.Seen != "" {
		batch.Queue(tx.many.Seen, pairs).Query(note)
	}
	if tx.many.Xid != "" {
		batch.Queue(tx.many.Xid).QueryRow(func(row pgx.Row) error { return row.Scan(&tx.xid) })
	}
	batch.Queue(tx.many.Restore).QueryRow(func(row pgx.Row) error { return row.Scan((*string)(&tx.began)) })
	results := tx.conn.Conn().SendBatch(limited, &batch)
	err = results.Close()
	tx.tx = results.Tx()
	if err == nil {
		err = answers.Err()
	}
	return answers.Fresh, err
}

// Run implements gather.Transaction.
func (tx *groupTx) Run(ctx context.Context, _ int, fn func(context.Context, pgx.Tx) error) error {
	tx.ran++
	return tx.store.run(tx.store.inside(ctx), tx.tx, tx.began, func(ctx context.Context, guarded pgx.Tx) error {
		return fn(ctx, &groupedTx{guarded})
	})
}

// Ended implements gather.Transaction. It gives the connection back first: it may be closed, and the pool may have no
// other one.
func (tx *groupTx) Ended(keys []dedupstore.Key) {
	tx.Rollback() // of a transaction that the function has begun
	if tx.xid == "" || len(keys) == 0 {
		return
	}
	limited := tx.store.ends.start(context.Background())
	defer tx.store.ends.stop(limited)
	if _, err := tx.store.pool.Exec(limited, tx.many.TakeBackOf, record.Pairs(keys), tx.xid); err != nil {
		tx.store.cfg.Logger.Error("einmal: a function ended the transaction of a group, and the records of events that have not run could not be taken back",
			slog.Int("events", len(keys)), slog.Any("error", err))
	}
}

// Commit implements gather.Transaction.
func (tx *groupTx) Commit(back []dedupstore.Key) error {
	ctx := context.Background()
	if err := tx.takeBack(ctx, back); err != nil {
		return fmt.Errorf("pgxstore: rolled back: take back the records of events that have not run: %w", err)
	}
	if tx.ran > 1 {
		if err := tx.unchanged(ctx); err != nil {
			return err
		}
	}
	return tx.store.commit(ctx, tx.tx)
}

// unchanged reports whether a function has changed the session in a way that its run has not seen: then those behind it
// have run as somebody else, perhaps, and all run again, in the end alone.
func (tx *groupTx) unchanged(ctx context.Context) error {
	limited := tx.store.ends.start(ctx)
	defer tx.store.ends.stop(limited)
	now, err := tx.store.session(limited, tx.tx)
	switch {
	case err != nil:
		return fmt.Errorf("pgxstore: rolled back: look at the session: %w", err)
	case !now.Same(tx.began):
		return record.ErrSessionChanged
	}
	return nil
}

func (tx *groupTx) takeBack(ctx context.Context, keys []dedupstore.Key) error {
	if len(keys) == 0 {
		return nil
	}
	limited := tx.store.ends.start(ctx)
	defer tx.store.ends.stop(limited)
	tag, err := tx.tx.Exec(limited, tx.many.TakeBack, record.Pairs(keys))
	if err == nil && tag.RowsAffected() != int64(len(keys)) {
		err = fmt.Errorf("%d of %d rows were deleted", tag.RowsAffected(), len(keys))
	}
	return err
}

// Rollback implements gather.Transaction.
func (tx *groupTx) Rollback() { tx.ended.Do(tx.end) }

func (tx *groupTx) end() {
	tx.store.rollback(context.Background(), tx.tx) // does nothing after a commit
	tx.conn.Release()
	tx.store.places.Leave()
}

// Abandon implements gather.Transaction: the server ends a transaction whose connection is cut.
func (tx *groupTx) Abandon() { _ = tx.tx.Conn().PgConn().Conn().Close() }

// groupedTx is the transaction as a function of a group sees it. What would end it is not sent: the records of others
// would be committed without their effects.
type groupedTx struct{ pgx.Tx }

// Exec implements pgx.Tx.
func (tx *groupedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if endsTransaction(sql) {
		return pgconn.CommandTag{}, tx.Commit(ctx) // which refuses, and makes the call fail
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

// endsTransaction reports whether the statement, or the first of several, ends the transaction or begins another one.
func endsTransaction(sql string) bool {
	words := strings.Fields(sql[:min(len(sql), 64)])
	if len(words) == 0 {
		return false
	}
	switch strings.ToLower(strings.TrimRight(words[0], ";")) {
	case "begin", "start", "commit", "end", "abort":
		return true
	case "rollback":
		return !slices.ContainsFunc(words[1:], func(w string) bool { return strings.EqualFold(w, "to") })
	}
	return len(words) > 1 && strings.EqualFold(words[0], "prepare") && strings.EqualFold(words[1], "transaction")
}
