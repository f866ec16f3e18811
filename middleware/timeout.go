package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/errtype"
)

// ErrTimeout is wrapped by the error of an attempt that Timeout ended. errors.Is finds context.DeadlineExceeded in it,
// too.
var ErrTimeout = errtype.New("timeout", "the attempt took too long")

// Timeout returns a middleware that gives the handler of each attempt d: then its context is done, and with it the
// statements that wait in the database. Dedup rolls back an attempt whose time is over, whatever the handler returns;
// Retry makes another one.
//
// The time runs from where Timeout stands in the chain, but not while a Dedup inside waits for the database: for a
// connection of the pool, for BEGIN, for another transaction that holds the record. The event is not to blame for
// these. They have a time of their own, d or 10 s, whichever is longer: what it ends is of the class
// dedupstore.Unavailable, which Retry does not count. COMMIT has the time that the store gives it.
//
// Timeout cannot end a handler that does not look at its context: it waits for it, as everybody else must. What such a
// handler returns after its time is an error that wraps ErrTimeout even if it is nil, so that the message stays open
// and comes again. Only where Dedup stands inside, its nil counts: the transaction is committed then.
//
// d should be well below the time that a rebalance grants to a handler (Config.DrainTimeout), and above
// what the slowest healthy attempt takes. d must be positive; consumer.New says so if it is not.
func Timeout(d time.Duration) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return &timeout{next: next, d: d, over: &timeoutError{d: d}, waited: &waitedError{max(d, minWait)}}
	}
}

// minWait is the least time for what the event is not to blame for. It is what the first round trip of a store may
// take.
const minWait = 10 * time.Second

type timeout struct {
	next consumer.Handler
	d    time.Duration

	// The causes of the end of this link's contexts, which tell its deadlines from others.
	over   *timeoutError
	waited *waitedError
}

// Unwrap implements consumer.Wrapper.
func (t *timeout) Unwrap() consumer.Handler { return t.next }

// Link implements consumer.Linker.
func (t *timeout) Link() consumer.Link { return consumer.LinkTimeout }

// AttemptTimeout tells consumer.New how long the handler may take, and the start's comparison with other settings.
func (t *timeout) AttemptTimeout() time.Duration { return t.d }

// Validate implements consumer.Validator.
func (t *timeout) Validate([]consumer.Handler) error {
	if t.d <= 0 {
		return fmt.Errorf("middleware.Timeout: the time is %v: make it positive, or remove Timeout", t.d)
	}
	return nil
}

// Handle implements consumer.Handler.
func (t *timeout) Handle(ctx context.Context, msg *consumer.Message) error {
	if err := t.Validate(nil); err != nil {
		return err // not permanent: nothing is wrong with the message
	}
	c := newClock(ctx, t)
	defer c.stop()
	err := consumer.SafeError(t.next.Handle(c, msg))
	over := context.Cause(c) == error(t.over) //nolint:errorlint // this very cause, not one that wraps it
	switch {
	case !over, err == nil && committed(msg), errors.Is(err, t.over): // stores wrap the cause
		return err
	default:
		return &timeoutError{t.d, err}
	}
}

// committed reports whether Dedup stands inside: its nil means that the transaction is committed.
func committed(msg *consumer.Message) bool { return !msg.Result.End.IsZero() }

// timeoutError is the error of an attempt whose time was over.
type timeoutError struct {
	d   time.Duration
	err error // of the handler; nil if it returned none
}

func (e *timeoutError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("%v: more than %v", ErrTimeout, e.d)
	}
	return fmt.Sprintf("%v: more than %v: %v", ErrTimeout, e.d, e.err)
}

// Unwrap keeps what the handler's error asks for: a permanent error stays one.
func (e *timeoutError) Unwrap() []error {
	if e.err == nil {
		return []error{ErrTimeout, context.DeadlineExceeded}
	}
	return []error{ErrTimeout, context.DeadlineExceeded, e.err}
}

// waitedError is why a wait for the database was given up.
type waitedError struct{ limit time.Duration }

func (e *waitedError) Error() string {
	return fmt.Sprintf("the database was waited for longer than %v", e.limit)
}

func (e *waitedError) Unwrap() error { return context.DeadlineExceeded }
