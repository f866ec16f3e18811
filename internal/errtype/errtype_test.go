package errtype_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
)

type sqlError struct{ code string }

func (sqlError) Error() string      { return "s3cret" }
func (e sqlError) SQLState() string { return e.code }

// named is an error of a user that names itself.
type named struct{ error }

func (e named) Unwrap() error { return e.error }
func (named) ErrorType() string {
	return "out_of_stock"
}

func TestOf(t *testing.T) {
	t.Parallel()
	refused := &url.Error{Op: "Post", URL: "http://s3cret", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("s3cret"), "*errors.errorString"},
		{refused, "*url.Error"},
		{fmt.Errorf("call: %w", refused), "*url.Error"},
		{&consumer.GaveUp{Attempts: 2, Err: refused}, "*url.Error"},
		{errors.Join(nil, refused), "*url.Error"},
		{syscall.ECONNREFUSED, "syscall.Errno"},
		{dedupstore.WithClass(dedupstore.Unavailable, refused), "unavailable"},
		{dedupstore.WithClass(dedupstore.Unclassified, refused), "*url.Error"},
		{dedupstore.WithClass(dedupstore.Unavailable, sqlError{"57P01"}), "57P01"},
		{sqlError{"no code"}, "github.com/einmal-go/einmal/internal/errtype_test.sqlError"},
		{&consumer.Panic{Value: sqlError{"23505"}}, "panic"},
		{fmt.Errorf("%w: %w", consumer.ErrNoEventID, &consumer.Panic{}), "panic"},
		{consumer.ErrNoEventID, "no_event_id"},
		{consumer.ErrTombstone, "tombstone"},
		{consumer.ErrProcessingLimit, "timeout"},
		{fmt.Errorf("%w: it came to %w", consumer.ErrEarlierAttempt, context.DeadlineExceeded), "earlier_attempt"},
		{dedupstore.ErrInvalidKey, "invalid_key"},
		{dedupstore.ErrTooOld, "too_old"},
		{dedupstore.ErrTxEnded, "transaction_ended"},
		{dedupstore.ErrLocked, "locked"},
		{dedupstore.ErrOutcomeUnknown, "outcome_unknown"},
		{named{refused}, "out_of_stock"},
		{dedupstore.WithClass(dedupstore.Unavailable, named{refused}), "out_of_stock"},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), "timeout"},
		{context.Canceled, "canceled"},
		{errtype.New(strings.Repeat("x", 200), ""), strings.Repeat("x", 128)},
	} {
		if got := errtype.Of(test.err); got != test.want {
			t.Errorf("%T %v: %q, want %q", test.err, test.err, got, test.want)
		}
	}
}

func TestClass(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	for want, err := range map[string]error{
		"":              base,
		"unavailable":   fmt.Errorf("a: %w", dedupstore.WithClass(dedupstore.Unavailable, base)),
		"misconfigured": dedupstore.WithClass(dedupstore.Misconfigured, dedupstore.WithClass(dedupstore.Transient, base)),
		"permanent":     dedupstore.ErrTooOld,
	} {
		if got := errtype.Class(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
