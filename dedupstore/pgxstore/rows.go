package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
)

// RowStore records keys as a Store does, for functions that hand in rows instead of writing them. One function, flush,
// writes the rows of all functions of a group, in the order of their calls: by COPY, by one INSERT of arrays, or by an
// UPDATE of sums. It is safe for concurrent use.
//
// The functions of a group run side by side. If flush fails, the group is rolled back and halved until the call is
// alone whose rows it does not write, and its error is that call's; if it panics, it does so in the end on that call's
// goroutine.
//
// The context of flush has no values of a call. It ends with the first of the contexts of the calls that have rows, and
// after IdleTimeout; where a call is alone, the context is that call's.
type RowStore[R any] struct {
	store  *Store
	flush  func(ctx context.Context, tx pgx.Tx, rows []R) error
	groups *gather.Gatherer[*dedupstore.Rows[R]] // nil without groups
}

var (
	_ dedupstore.Store[*dedupstore.Rows[int]]      = (*RowStore[int])(nil)
	_ dedupstore.Transactor[*dedupstore.Rows[int]] = (*RowStore[int])(nil)
	_ dedupstore.Checker                           = (*RowStore[int])(nil)
	_ dedupstore.Identifier                        = (*RowStore[int])(nil)
	_ dedupstore.Grouper                           = (*RowStore[int])(nil)
	_ dedupstore.GroupReporter                     = (*RowStore[int])(nil)
)

// NewRows returns a RowStore on pool, as New returns a Store. flush is not called without rows. It must not keep them.
// Without Config.Group it is called for each message.
func NewRows[R any](pool *pgxpool.Pool, cfg *Config,
	flush func(ctx context.Context, tx pgx.Tx, rows []R) error) *RowStore[R] {
	s := &RowStore[R]{store: ungrouped(pool, cfg), flush: flush}
	if flush == nil {
		s.store.invalid = errors.Join(errors.New("the function that writes the rows is nil"), s.store.invalid)
	}
	if s.store.cfg.Group > 1 {
		s.groups = gather.New(gather.Collect(&gather.Collecting[pgx.Tx, R]{
			Backend: &groups{store: s.store}, Flush: flush, Limit: s.store.cfg.IdleTimeout, Done: s.store.sql.Done,
			Inside: s.store.inside,
		}), s.store.gathering(true))
	}
	return s
}

// Once implements dedupstore.Store.
func (s *RowStore[R]) Once(ctx context.Context, key dedupstore.Key,
	fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) (ran bool, err error) {
	if err := s.store.sql.Invalid(s.store.invalid, key.Validate()); err != nil {
		return false, err
	}
	if s.groups == nil || s.store.nested(ctx) {
		return s.store.alone(ctx, key, s.store.runAndCommit(gather.Writing(fn, s.flush)))
	}
	return s.groups.Once(ctx, key, fn)
}

// InTx implements dedupstore.Transactor.
func (s *RowStore[R]) InTx(ctx context.Context, fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) error {
	return s.store.InTx(ctx, gather.Writing(fn, s.flush))
}

// Check implements dedupstore.Checker, as Store.Check does.
func (s *RowStore[R]) Check(ctx context.Context) error { return s.store.Check(ctx) }

// Identity implements dedupstore.Identifier.
func (s *RowStore[R]) Identity(ctx context.Context) (string, error) { return s.store.Identity(ctx) }

// IdleTimeout is Config.IdleTimeout, for who compares it with other times.
func (s *RowStore[R]) IdleTimeout() time.Duration { return s.store.IdleTimeout() }

// Group implements dedupstore.Grouper.
func (s *RowStore[R]) Group() int { return s.store.Group() }

// GroupStats implements dedupstore.GroupReporter.
func (s *RowStore[R]) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	if s.groups == nil {
		return stats, false
	}
	return s.groups.Stats(), true
}

// WatchGroups implements dedupstore.GroupReporter.
func (s *RowStore[R]) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	if s.groups != nil {
		s.groups.Watch(watcher, f)
	}
}
