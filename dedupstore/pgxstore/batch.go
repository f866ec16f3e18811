package pgxstore

import (
	"context"
	"errors"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// BatchStore records keys as a Store does, for functions that queue their statements instead of sending them. It sends
// what all functions of a group have queued together with COMMIT: a transaction is two round trips, however many
// messages it has. It is safe for concurrent use.
//
// A function queues statements with pgx.Batch.Queue, in the order in which they run, and reads nothing. It may look at
// an answer by a callback (pgx.QueuedQuery.Exec, Query, QueryRow), whose error is the function's; a group with a
// callback is three round trips. The functions of a group run side by side. A statement that fails is an error of the
// message that queued it.
//
// A statement may take until the deadline of the call's context, and IdleTimeout at most. The contexts of a group's
// calls may be cancelled earlier: CommitTimeout after the last of them has, the statements are given up.
type BatchStore struct {
	store  *Store
	groups *gather.Gatherer[*pgx.Batch] // nil without groups
}

var (
	_ dedupstore.Store[*pgx.Batch]      = (*BatchStore)(nil)
	_ dedupstore.Transactor[*pgx.Batch] = (*BatchStore)(nil)
	_ dedupstore.Checker                = (*BatchStore)(nil)
	_ dedupstore.Grouper                = (*BatchStore)(nil)
	_ dedupstore.GroupReporter          = (*BatchStore)(nil)
	_ dedupstore.Identifier             = (*BatchStore)(nil)
)

// NewBatch returns a BatchStore on pool, as New returns a Store. Without Config.Group it saves a round trip per message
// at most.
func NewBatch(pool *pgxpool.Pool, cfg *Config) *BatchStore {
	s := &BatchStore{store: ungrouped(pool, cfg)}
	s.store.invalid = errors.Join(s.store.invalid, validMode(pool))
	if s.store.cfg.Group > 1 {
		s.groups = gather.New(&batchGroups{groups{store: s.store}}, s.store.gathering(true))
	}
	return s
}

// ungrouped returns a Store whose calls somebody else gathers.
func ungrouped(pool *pgxpool.Pool, cfg *Config) *Store {
	var single Config
	if cfg != nil {
		single = *cfg
	}
	size := single.Group
	single.Group = 0
	s := New(pool, &single)
	s.cfg.Group = size
	s.invalid = errors.Join(s.invalid, s.cfg.Validate())
	return s
}

// validMode refuses the protocol in which a text may be several statements, so that answers could not be told apart.
func validMode(pool *pgxpool.Pool) error {
	if pool != nil && pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return errors.New("queued statements cannot be sent in the simple protocol: set default_query_exec_mode=exec in the URL, which works with every pooler too")
	}
	return nil
}

// Once implements dedupstore.Store.
func (s *BatchStore) Once(ctx context.Context, key dedupstore.Key,
	fn func(ctx context.Context, batch *pgx.Batch) error) (ran bool, err error) {
	if err := s.store.sql.Invalid(s.store.invalid, key.Validate()); err != nil {
		return false, err
	}
	if s.groups == nil || s.store.nested(ctx) {
		return s.store.alone(ctx, key, s.store.queueAndCommit(fn))
	}
	ran, err = s.groups.Once(ctx, key, fn)
	if escaped, ok := errors.AsType[*escape](err); ok {
		escaped.goOn()
	}
	return ran, err
}

// InTx implements dedupstore.Transactor.
func (s *BatchStore) InTx(ctx context.Context, fn func(ctx context.Context, batch *pgx.Batch) error) error {
	return s.store.unkeyed(ctx, s.store.queueAndCommit(fn))
}

// Check implements dedupstore.Checker, as Store.Check does.
func (s *BatchStore) Check(ctx context.Context) error { return s.store.Check(ctx) }

// Identity implements dedupstore.Identifier.
func (s *BatchStore) Identity(ctx context.Context) (string, error) { return s.store.Identity(ctx) }

// Group implements dedupstore.Grouper.
func (s *BatchStore) Group() int { return s.store.Group() }

// GroupStats implements dedupstore.GroupReporter.
func (s *BatchStore) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	if s.groups == nil {
		return stats, false
	}
	return s.groups.Stats(), true
}

// WatchGroups implements dedupstore.GroupReporter.
func (s *BatchStore) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	if s.groups != nil {
		s.groups.Watch(watcher, f)
	}
}

// queueAndCommit is the way of a single call.
func (s *Store) queueAndCommit(fn func(ctx context.Context, batch *pgx.Batch) error) finish {
	return func(ctx context.Context, tx pgx.Tx, _ record.Session) error {
		its, err := s.collect(ctx, 0, fn)
		if err != nil {
			return err
		}
		err = s.send(ctx, tx, []*queued{its})
		if blame, ok := errors.AsType[*gather.Blame](err); ok {
			return blame.Err
		}
		return err
	}
}

// batchGroups runs groups of calls for a BatchStore. It implements gather.Backend.
type batchGroups struct{ groups }

var _ gather.Backend[*pgx.Batch] = (*batchGroups)(nil)

// Once implements gather.Backend.
func (g *batchGroups) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *pgx.Batch) error) (bool,
	error) {
	return g.store.alone(ctx, key, g.store.queueAndCommit(fn))
}

// Begin implements gather.Backend.
func (g *batchGroups) Begin(ctx context.Context, keys []dedupstore.Key) (gather.Transaction[*pgx.Batch], []bool,
	error) {
	tx, fresh, err := g.enter(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	return &batchTx{groupTx: tx, queued: make([]*queued, len(keys))}, fresh, nil
}

// batchTx is the transaction of a group of a BatchStore. It implements gather.Transaction.
type batchTx struct {
	*groupTx
	queued []*queued // by the place of the member; nil where no function has run
}

// Run implements gather.Transaction.
func (tx *batchTx) Run(ctx context.Context, place int, fn func(context.Context, *pgx.Batch) error) (err error) {
	tx.queued[place], err = tx.store.collect(tx.store.inside(ctx), place, fn)
	return err
}

// Ended implements gather.Transaction. Nothing was sent.
func (tx *batchTx) Ended([]dedupstore.Key) {}

// Abandon implements gather.Transaction. No function uses the connection.
func (tx *batchTx) Abandon() { tx.Rollback() }

// Commit implements gather.Transaction.
func (tx *batchTx) Commit(back []dedupstore.Key) error {
	ctx := context.Background()
	if err := tx.takeBack(ctx, back); err != nil {
		return err
	}
	var all []*queued
	for _, q := range tx.queued {
		if q != nil {
			all = append(all, q)
		}
	}
	return caught(func() error { return tx.store.send(ctx, tx.tx, all) }, all)
}

// caught calls send, whose callbacks belong to other goroutines: one that panics, or ends its goroutine, does so there.
func caught(send func() error, all []*queued) error {
	if !called(all) {
		return send()
	}
	result := make(chan error, 1)
	go func() {
		exit := &escape{}
		defer func() {
			if exit != nil {
				exit.value = recover()
				result <- blamed(all, exit)
			}
		}()
		err := send()
		exit = nil
		result <- err
	}()
	return <-result
}

// blamed names the call whose callback is under way.
func blamed(all []*queued, err error) error {
	for _, q := range all {
		if q.calling {
			return &gather.Blame{Place: q.place, Err: err}
		}
	}
	return err
}

// escape is a panic of a callback, or its end by runtime.Goexit.
type escape struct{ value any }

func (e *escape) Error() string { return "a callback of a queued statement did not return" }

// goOn does on this goroutine what the callback did.
func (e *escape) goOn() {
	if e.value == nil {
		runtime.Goexit()
	}
	panic(e.value)
}
