package sqltx

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
)

// RowStore is a Store whose functions hand in rows, which flush writes. It is safe for concurrent use.
type RowStore[T Tx, R any] struct {
	store  *Store[T]
	flush  func(ctx context.Context, tx T, rows []R) error
	groups func() *gather.Gatherer[*dedupstore.Rows[R]] // nil without groups
}

// Rows returns a RowStore that takes the place of s.
func Rows[T Tx, R any](s *Store[T], flush func(ctx context.Context, tx T, rows []R) error) *RowStore[T, R] {
	s.groups = nil // its calls are gathered here
	if flush == nil {
		s.invalid = errors.Join(errors.New("the function that writes the rows is nil"), s.invalid)
	}
	r := &RowStore[T, R]{store: s, flush: flush}
	if s.cfg.Group > 1 {
		r.groups = sync.OnceValue(func() *gather.Gatherer[*dedupstore.Rows[R]] {
			return gather.New(gather.Collect(&gather.Collecting[T, R]{
				Backend: &groups[T]{store: s}, Flush: flush, Limit: s.IdleTimeout(), Done: s.dialect.Done, Inside: s.inside,
			}), s.gathering(true))
		})
	}
	return r
}

// Once implements dedupstore.Store.
func (r *RowStore[T, R]) Once(ctx context.Context, key dedupstore.Key,
	fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) (ran bool, err error) {
	if err := r.store.dialect.Invalid(r.store.invalid, key.Validate()); err != nil {
		return false, err
	}
	if r.groups == nil || r.store.nested(ctx) {
		return r.store.alone(ctx, key, gather.Writing(fn, r.flush))
	}
	return r.groups().Once(ctx, key, fn)
}

// InTx implements dedupstore.Transactor.
func (r *RowStore[T, R]) InTx(ctx context.Context, fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) error {
	return r.store.InTx(ctx, gather.Writing(fn, r.flush))
}

// Check implements dedupstore.Checker.
func (r *RowStore[T, R]) Check(ctx context.Context) error { return r.store.Check(ctx) }

// Identity implements dedupstore.Identifier.
func (r *RowStore[T, R]) Identity(ctx context.Context) (string, error) { return r.store.Identity(ctx) }

// IdleTimeout is how long a transaction may be left alone, 0 for no limit.
func (r *RowStore[T, R]) IdleTimeout() time.Duration { return r.store.IdleTimeout() }

// Group implements dedupstore.Grouper.
func (r *RowStore[T, R]) Group() int { return r.store.Group() }

// GroupStats implements dedupstore.GroupReporter.
func (r *RowStore[T, R]) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	if r.groups == nil {
		return stats, false
	}
	return r.groups().Stats(), true
}

// WatchGroups implements dedupstore.GroupReporter.
func (r *RowStore[T, R]) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	if r.groups != nil {
		r.groups().Watch(watcher, f)
	}
}
