package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// refused is an error of a user, with a type that tells something and a text that tells too much.
type refused struct{ order string }

func (e *refused) Error() string { return "order " + e.order + " refused" }

// named is an error that names its class itself.
type named struct{ error }

func (named) ErrorType() string { return "out_of_stock" }

// wrapper is an error whose type tells nothing.
type wrapper struct{ error }

func (w wrapper) Unwrap() error { return w.error }

// pgdriverError is one of bun's pgdriver.
type pgdriverError struct{}

func (pgdriverError) Error() string       { return "s3cret" }
func (pgdriverError) Field(k byte) string { return map[byte]string{'C': "40001", 'M': "s3cret"}[k] }

// error.type is a class of few words, never a text.
func TestErrorType(t *testing.T) {
	t.Parallel()
	syntax := consumer.JSON(func(context.Context, int) error { return nil }).Handle(t.Context(),
		&consumer.Message{Value: []byte("s3cret")})
	for _, test := range []struct {
		err  error
		want string
	}{
		{errBase, "*errors.errorString"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", &refused{"s3cret"})), "*middleware_test.refused"},
		{consumer.Permanent(&refused{"s3cret"}), "*middleware_test.refused"},
		{&consumer.GaveUp{Err: consumer.RetryAfter(0, wrapper{&refused{"s3cret"}})}, "*middleware_test.refused"},
		{errors.Join(&refused{"s3cret"}, errBase), "*middleware_test.refused"},
		{named{errBase}, "out_of_stock"},
		{fmt.Errorf("a: %w", named{errBase}), "out_of_stock"},
		{syntax, "*consumer.DecodeError"},
		{fmt.Errorf("insert: %w", &pgconn.PgError{Code: "40P01", Message: "s3cret"}), "40P01"},
		{fmt.Errorf("%w: %w", dedupstore.ErrOutcomeUnknown, &pgconn.PgError{Code: "57P01"}), "57P01"},
		{fmt.Errorf("insert: %w", pgdriverError{}), "40001"},
		{&pgconn.PgError{}, "*pgconn.PgError"},
		{consumer.Permanent(fmt.Errorf("%w: header", consumer.ErrNoEventID)), "no_event_id"},
		{consumer.Permanent(dedupstore.Key{}.Validate()), "invalid_key"},
		{dedupstore.ErrOutcomeUnknown, "outcome_unknown"},
		{dedupstore.ErrTxEnded, "transaction_ended"},
		{fmt.Errorf("%w: %w", dedupstore.ErrLocked, &refused{"s3cret"}), "locked"},
		{dedupstore.WithClass(dedupstore.Unavailable, &refused{"s3cret"}), "unavailable"},
		{dedupstore.WithClass(dedupstore.Unavailable, &pgconn.PgError{Code: "57P01"}), "57P01"},
		{dedupstore.WithClass(dedupstore.Misconfigured, context.DeadlineExceeded), "timeout"},
		{middleware.ErrTooOld, "too_old"},
		{consumer.ErrTombstone, "tombstone"},
		{fmt.Errorf("%w: %w", middleware.ErrTimeout, context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("query: %w", context.DeadlineExceeded), "timeout"},
		{context.Canceled, "canceled"},
		{&consumer.Panic{Value: &refused{"s3cret"}}, "panic"},
	} {
		book := &logbook{}
		handled(t.Context(), middleware.Logging(book.logger(slog.LevelInfo), nil)(returning(test.err)), message())
		if got := book.lines(t)[0]["error.type"]; got != test.want {
			t.Errorf("%T %q: got %v, want %s", test.err, test.err, got, test.want)
		}
	}
}

// What links cost that have nothing to say. testing.AllocsPerRun does not work in parallel tests.
func TestAllocations(t *testing.T) { //nolint:paralleltest // see above
	msg := message()
	msg.Headers = []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}
	quiet := slog.New(slog.NewTextHandler(nil, &slog.HandlerOptions{Level: slog.LevelInfo}))
	for _, test := range []struct {
		name string
		mws  []consumer.Middleware
		most float64
	}{
		{"Retry, Recover", []consumer.Middleware{middleware.Retry(5, nil), middleware.Recover()}, 0},
		{"Logging below its level", []consumer.Middleware{middleware.Logging(quiet,
			&middleware.LoggingConfig{PerSecond: -1})}, 0},
		{"Tracing without a provider", []consumer.Middleware{middleware.Tracing(nil)}, 10},
		{"Timeout", []consumer.Middleware{middleware.Timeout(time.Second)}, 6},
	} {
		h := compose(returning(nil), test.mws...)
		ctx := t.Context()
		if got := testing.AllocsPerRun(100, func() { _ = h.Handle(ctx, msg) }); got > test.most {
			t.Errorf("%s: %v allocations for each message, at most %v were expected", test.name, got, test.most)
		} else {
			t.Logf("%s: %v", test.name, got)
		}
	}
}
