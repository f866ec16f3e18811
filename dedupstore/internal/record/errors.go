package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
)

// explainer implements Explainer. Each error begins with the store's name.
type explainer struct {
	store string
	cfg   Config
}

// Invalid implements Explainer.
func (e *explainer) Invalid(configuration, key error) error {
	switch {
	case configuration != nil:
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: %w", e.store, configuration))
	case key != nil:
		return fmt.Errorf("%s: %w", e.store, key)
	}
	return nil
}

// Done implements Explainer.
func (e *explainer) Done(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, cause(ctx)) {
		return fmt.Errorf("%s: rolled back: %w", e.store, cause(ctx))
	}
	return fmt.Errorf("%s: rolled back: %w (%w)", e.store, cause(ctx), err)
}

// Waiting implements Explainer.
func (e *explainer) Waiting(ctx context.Context) error {
	return e.as(dedupstore.Unavailable, "get a connection: %w", cause(ctx))
}

// waited is the error of a call that was given up while it waited, for BEGIN, a lock or an answer, before its function
// began. The event is not to blame for it.
func (e *explainer) waited(ctx context.Context, err error) error {
	return dedupstore.WithClass(dedupstore.Unavailable, e.Done(ctx, err))
}

// TxEnded implements Explainer.
func (e *explainer) TxEnded(err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w", e.store, dedupstore.ErrTxEnded)
	case !errors.Is(err, dedupstore.ErrTxEnded):
		err = fmt.Errorf("%w (%w)", err, dedupstore.ErrTxEnded)
	}
	return dedupstore.WithClass(dedupstore.Permanent, err)
}

// Lost implements Explainer.
func (e *explainer) Lost(err error) error {
	const says = "%s: rolled back: the connection was lost while the function ran, and the function returned nil: return the errors of all statements"
	if err == nil {
		return dedupstore.WithClass(dedupstore.Unavailable, fmt.Errorf(says, e.store))
	}
	return dedupstore.WithClass(dedupstore.Unavailable, fmt.Errorf(says+": %w", e.store, err))
}

// Swallowed implements Explainer.
func (e *explainer) Swallowed(err error) error {
	const says = "%s: rolled back: a statement failed, and the function returned nil: return the errors of all statements, or set a savepoint before one that may fail"
	if err == nil {
		return fmt.Errorf(says, e.store)
	}
	return fmt.Errorf(says+": %w", e.store, err)
}

// RowsOpen implements Explainer.
func (e *explainer) RowsOpen() error {
	return fmt.Errorf("%s: rolled back: the function returned while rows or a batch of its were open: close them", e.store)
}

// Unknown implements Explainer.
func (e *explainer) Unknown(err error) error {
	return fmt.Errorf("%s: commit: %w: call Once again, the record decides: %w", e.store, dedupstore.ErrOutcomeUnknown,
		err)
}

// ForgetError implements Explainer.
func (e *explainer) ForgetError(err error, left bool) error {
	switch {
	case err != nil:
		return inClass(sqlclass.Of(err), fmt.Errorf("%s: delete a record: %w", e.store, err))
	case left:
		return e.as(dedupstore.Misconfigured,
			"delete a record: it was deleted, and is still there: a trigger or a rule swallows what is deleted, or a policy of row-level security hides it: remove it")
	}
	return nil
}

// Place implements Explainer.
func (e *explainer) Place(err error) error { return e.as(dedupstore.Unavailable, "%w", err) }

// inClass gives the function's error a class, unless it has one.
func inClass(class dedupstore.Class, err error) error {
	if class == dedupstore.Unclassified || dedupstore.ClassOf(err) != dedupstore.Unclassified {
		return err
	}
	return dedupstore.WithClass(class, err)
}

// as is an error of the store with a class.
func (e *explainer) as(class dedupstore.Class, format string, args ...any) error {
	return dedupstore.WithClass(class, fmt.Errorf(e.store+": "+format, args...))
}

// named is an error that has its class.
func (e *explainer) named(what string, err error) error {
	return fmt.Errorf("%s: %s: %w", e.store, what, err)
}

// cause returns why ctx is done: the context's error, and its cause where that is another one.
func cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// silent is an error whose text does not repeat those that it wraps.
type silent struct {
	text string
	err  error
}

func (e *silent) Error() string { return e.text }
func (e *silent) Unwrap() error { return e.err }

// beginError is BeginError for a dialect that knows the error's class.
func (e *explainer) beginError(ctx context.Context, class dedupstore.Class, err error) error {
	if ctx.Err() != nil {
		return e.waited(ctx, err)
	}
	if class == dedupstore.Unclassified {
		class = dedupstore.Unavailable // nothing in it can be wrong but the connection
	}
	return e.as(class, "begin: %w", err)
}
