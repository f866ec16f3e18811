package gather

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// Collecting is what Collect is told. All fields but Limit are required.
type Collecting[Tx, R any] struct {
	Backend Backend[Tx]

	// Flush writes the rows of all functions of a group, in the order of their calls.
	Flush func(ctx context.Context, tx Tx, rows []R) error

	// Limit is how long Flush may take in a group, 0 for no limit.
	Limit time.Duration

	// Done is the error of a call whose context has ended after its function began; err may be nil.
	Done func(ctx context.Context, err error) error

	// Inside marks the context of a function, whose own calls of Once cannot wait for its group.
	Inside func(ctx context.Context) context.Context
}

// Collect returns a Backend whose functions hand in rows instead of using the transaction, so that they may run at
// once. The group's transaction writes them by one call of Flush. If that fails, and the error does not tell which call
// is to blame, the group is halved.
func Collect[Tx, R any](c *Collecting[Tx, R]) Backend[*dedupstore.Rows[R]] {
	return collector[Tx, R]{c}
}

// Writing returns a function that runs fn, and writes its rows.
func Writing[Tx, R any](fn func(context.Context, *dedupstore.Rows[R]) error,
	flush func(context.Context, Tx, []R) error) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		var rows dedupstore.Rows[R]
		if err := fn(ctx, &rows); err != nil || len(rows.All()) == 0 {
			return err
		}
		return flush(ctx, tx, rows.All())
	}
}

type collector[Tx, R any] struct{ *Collecting[Tx, R] }

// Once implements Backend.
func (c collector[Tx, R]) Once(ctx context.Context, key dedupstore.Key,
	fn func(context.Context, *dedupstore.Rows[R]) error) (bool, error) {
	return c.Backend.Once(ctx, key, Writing(fn, c.Flush))
}

// Fault implements Backend.
func (c collector[Tx, R]) Fault(err error) Fault {
	if errors.Is(err, dedupstore.ErrTxEnded) { // Flush has committed, perhaps
		return OfAll
	}
	return c.Backend.Fault(err)
}

// Waiting implements Backend.
func (c collector[Tx, R]) Waiting(ctx context.Context) error { return c.Backend.Waiting(ctx) }

// Begin implements Backend.
func (c collector[Tx, R]) Begin(ctx context.Context, keys []dedupstore.Key) (Transaction[*dedupstore.Rows[R]], []bool,
	error) {
	tx, fresh, err := c.Backend.Begin(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	return &collectingTx[Tx, R]{Collecting: c.Collecting, tx: tx, members: make([]handedIn[R], len(keys))}, fresh, nil
}

// collectingTx is the transaction of a group whose functions hand in rows.
type collectingTx[Tx, R any] struct {
	*Collecting[Tx, R]
	tx      Transaction[Tx]
	members []handedIn[R] // by their places
}

// handedIn is what one member has to write.
type handedIn[R any] struct {
	ctx  context.Context //nolint:containedctx // the call's, which bounds Flush
	rows []R
}

// Run implements Transaction.
func (t *collectingTx[Tx, R]) Run(ctx context.Context, place int,
	fn func(context.Context, *dedupstore.Rows[R]) error) error {
	var rows dedupstore.Rows[R]
	err := fn(t.Inside(ctx), &rows)
	if ctx.Err() != nil {
		return t.Done(ctx, err)
	}
	t.members[place] = handedIn[R]{ctx, rows.All()}
	return err
}

// Ended implements Transaction. No function uses the transaction.
func (t *collectingTx[Tx, R]) Ended([]dedupstore.Key) {}

// Rollback implements Transaction.
func (t *collectingTx[Tx, R]) Rollback() { t.tx.Rollback() }

// Abandon implements Transaction. No function uses the transaction.
func (t *collectingTx[Tx, R]) Abandon() { t.tx.Rollback() }

// Commit implements Transaction.
func (t *collectingTx[Tx, R]) Commit(back []dedupstore.Key) error {
	var rows []R
	var writers []int
	for place, m := range t.members {
		if len(m.rows) > 0 {
			rows = append(rows, m.rows...)
			writers = append(writers, place)
		}
	}
	if len(writers) > 0 {
		if err := t.flush(writers, rows); err != nil {
			return err
		}
	}
	return t.tx.Commit(back)
}

// flush writes. The first of the calls whose context ends is to blame for an error that comes of it, and a call that is
// alone is for any.
func (t *collectingTx[Tx, R]) flush(writers []int, rows []R) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if t.Limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, t.Limit)
		defer stop()
	}
	for _, place := range writers {
		defer context.AfterFunc(t.members[place].ctx, func() { cancel(&callEnded{place}) })()
	}
	err := t.tx.Run(ctx, writers[0], func(ctx context.Context, tx Tx) error {
		return returned(func() error { return t.Flush(ctx, tx, rows) })
	})
	if err == nil || errors.Is(err, dedupstore.ErrTxEnded) {
		return err
	}
	if ended, ok := errors.AsType[*callEnded](context.Cause(ctx)); ok {
		return &Blame{Place: ended.place, Err: t.Done(t.members[ended.place].ctx, nil)}
	}
	if _, escaped := errors.AsType[*notReturned](err); len(writers) == 1 && !escaped {
		return &Blame{Place: writers[0], Err: err}
	}
	return err
}

// callEnded is why Flush is cut short: the context of the member at place has ended.
type callEnded struct{ place int }

func (e *callEnded) Error() string { return fmt.Sprintf("the context of call %d has ended", e.place) }

// notReturned is the error of a Flush that panicked or ended its goroutine. The calls come again, and in the end it
// does so on the goroutine of the one that is to blame.
type notReturned struct{}

func (e *notReturned) Error() string { return "the function that writes the rows did not return" }

// returned runs f on a goroutine of its own, which f may end.
func returned(f func() error) error {
	result := make(chan error, 1)
	go func() {
		done := false
		defer func() {
			if !done {
				_ = recover()
				result <- &notReturned{}
			}
		}()
		err := f()
		done = true
		result <- err
	}()
	return <-result
}
