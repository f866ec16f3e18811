// Package rowtest makes a store whose functions hand in rows look like one whose functions write, so that the suites of
// the second try the first: a row is what a function does, and the rows of a group are written by doing one after the
// other.
package rowtest

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Act is a row.
type Act[Tx any] func(ctx context.Context, tx Tx) error

// Flush writes rows.
func Flush[Tx any](ctx context.Context, tx Tx, acts []Act[Tx]) error {
	for _, act := range acts {
		if err := act(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// RowStore is what the stores of rows have in common.
type RowStore[Tx any] interface {
	dedupstore.Store[*dedupstore.Rows[Act[Tx]]]
	dedupstore.Transactor[*dedupstore.Rows[Act[Tx]]]
	dedupstore.Checker
	dedupstore.Grouper
	dedupstore.GroupReporter
}

// Store makes a store of functions that write out of one of rows.
func Store[Tx any](rows RowStore[Tx]) dedupstore.Store[Tx] { return store[Tx]{rows, rows, rows, rows} }

type store[Tx any] struct {
	rows RowStore[Tx]
	dedupstore.Checker
	dedupstore.Grouper
	dedupstore.GroupReporter
}

var _ dedupstore.Transactor[int] = store[int]{}

// Once implements dedupstore.Store.
func (s store[Tx]) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx Tx) error) (bool,
	error) {
	return s.rows.Once(ctx, key, handing(fn))
}

// InTx implements dedupstore.Transactor.
func (s store[Tx]) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return s.rows.InTx(ctx, handing(fn))
}

func handing[Tx any](fn Act[Tx]) func(context.Context, *dedupstore.Rows[Act[Tx]]) error {
	return func(_ context.Context, rows *dedupstore.Rows[Act[Tx]]) error {
		rows.Add(fn)
		return nil
	}
}
