package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltx"
	"github.com/einmal-go/einmal/schema"
)

// RowStore records keys as a Store does, for functions that hand in rows instead of writing them. One function, flush,
// writes the rows of all functions of a group, in the order of their calls. It is pgxstore.RowStore for *sql.Tx:
// groups, blame and contexts are the same. It is safe for concurrent use.
type RowStore[R any] struct{ store *sqltx.RowStore[*sql.Tx, R] }

var (
	_ dedupstore.Store[*dedupstore.Rows[int]]      = (*RowStore[int])(nil)
	_ dedupstore.Transactor[*dedupstore.Rows[int]] = (*RowStore[int])(nil)
	_ dedupstore.Checker                           = (*RowStore[int])(nil)
	_ dedupstore.Identifier                        = (*RowStore[int])(nil)
	_ dedupstore.Grouper                           = (*RowStore[int])(nil)
	_ dedupstore.GroupReporter                     = (*RowStore[int])(nil)
)

// NewRows returns a RowStore on db, as New returns a Store. flush is not called without rows. It must not keep them.
// Without Config.Group it is called for each message.
func NewRows[R any](db *sql.DB, dialect schema.Dialect, cfg *Config,
	flush func(ctx context.Context, tx *sql.Tx, rows []R) error) *RowStore[R] {
	return &RowStore[R]{sqltx.Rows(New(db, dialect, cfg).store, flush)}
}

// Once implements dedupstore.Store.
func (s *RowStore[R]) Once(ctx context.Context, key dedupstore.Key,
	fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) (ran bool, err error) {
	return s.store.Once(ctx, key, fn)
}

// InTx implements dedupstore.Transactor.
func (s *RowStore[R]) InTx(ctx context.Context, fn func(ctx context.Context, rows *dedupstore.Rows[R]) error) error {
	return s.store.InTx(ctx, fn)
}

// Check implements dedupstore.Checker, as Store.Check does.
func (s *RowStore[R]) Check(ctx context.Context) error { return s.store.Check(ctx) }

// Identity implements dedupstore.Identifier.
func (s *RowStore[R]) Identity(ctx context.Context) (string, error) { return s.store.Identity(ctx) }

// IdleTimeout is that of a Store.
func (s *RowStore[R]) IdleTimeout() time.Duration { return s.store.IdleTimeout() }

// Group implements dedupstore.Grouper.
func (s *RowStore[R]) Group() int { return s.store.Group() }

// GroupStats implements dedupstore.GroupReporter.
func (s *RowStore[R]) GroupStats() (stats dedupstore.GroupStats, ok bool) {
	return s.store.GroupStats()
}

// WatchGroups implements dedupstore.GroupReporter.
func (s *RowStore[R]) WatchGroups(watcher any, f func(dedupstore.GroupResult)) {
	s.store.WatchGroups(watcher, f)
}
