package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
)

// Permanent marks err as one that no further attempt will cure. Retry gives up at once and a dead-letter middleware
// takes the message; without either, the topic's OnFailure applies. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (e *permanent) Error() string { return e.err.Error() }
func (e *permanent) Unwrap() error { return e.err }

// RetryAfter asks for another attempt, not before d has passed. The runner parks the message (and what must stay behind
// it in order); nobody waits in a goroutine. It is not a failure: OnFailure does not see it. RetryAfter(d, nil) is nil.
//
// A delay of less than 10 ms, zero and negative ones included, is 10 ms, so that no message is attempted in a loop; one
// of more than an hour is an hour, so that one in a wrong unit does not keep a partition waiting for years: whoever
// wants to wait longer asks again. Status tells until when a message waits (Failing.RetryAt).
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfter{d, err}
}

type retryAfter struct {
	delay time.Duration
	err   error
}

func (e *retryAfter) Error() string { return e.err.Error() }
func (e *retryAfter) Unwrap() error { return e.err }

// NotBefore says that a message is not due before t: the runner parks it until then (and what must stay behind it in
// order), as for RetryAfter. But nothing has failed: the attempt does not count, Status shows the message as parked and
// not as failing, and a partition whose oldest message is not due does not make Ready false. A link that says so stands
// outside of Retry and must look at the message alone, for the message may come again at any time.
func NotBefore(t time.Time) error { return &notBefore{t} }

type notBefore struct{ at time.Time }

func (e *notBefore) Error() string { return "not due before " + e.at.UTC().Format(time.RFC3339) }

// Due reports whether the outermost control error of err is a NotBefore, and its time.
func Due(err error) (t time.Time, ok bool) {
	if e, ok := control(err).(*notBefore); ok { //nolint:errorlint // control has looked through what wraps it
		return e.at, true
	}
	return time.Time{}, false
}

// GaveUp is Retry's last word: all attempts have failed, the last one with Err.
type GaveUp struct {
	Attempts int
	Err      error
}

func (e *GaveUp) Error() string {
	return fmt.Sprintf("gave up after %d attempts: %v", e.Attempts, e.Err)
}

// ErrorType is that of the error of the last attempt, for error.type.
func (e *GaveUp) ErrorType() string { return errtype.Of(e.Err) }

// Unwrap returns the error of the last attempt.
func (e *GaveUp) Unwrap() error { return e.Err }

// Panic is the error made of a panic in a handler.
type Panic struct {
	Value any    // what was passed to panic; nil if the handler ended its goroutine with runtime.Goexit
	Stack []byte // of the panicking goroutine, as debug.Stack returns it
}

// ErrorType is the value of error.type for a panic.
func (e *Panic) ErrorType() string { return errtype.Panic }

// Error names the type of the value, and its text only if it is an error or a string: other values may be payloads.
func (e *Panic) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return "the handler ended its goroutine (runtime.Goexit)"
	case error:
		return "panic: " + v.Error()
	case string:
		return "panic: " + v
	default:
		return fmt.Sprintf("panic: a %T", v)
	}
}

// Unwrap returns the value if it is an error.
func (e *Panic) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// IsPermanent reports whether err asks for no further attempt. Where Permanent, RetryAfter, NotBefore and GaveUp are
// nested, the outermost decides.
func IsPermanent(err error) bool {
	_, ok := control(err).(*permanent) //nolint:errorlint // control has looked through what wraps it
	return ok
}

// Delay returns how long err asks to wait, and whether its outermost control error is a RetryAfter or a NotBefore.
func Delay(err error) (d time.Duration, ok bool) {
	switch e := control(err).(type) { //nolint:errorlint // control has looked through what wraps it
	case *retryAfter:
		return e.delay, true
	case *notBefore:
		return max(0, time.Until(e.at)), true
	}
	return 0, false
}

// IsGaveUp reports whether the outermost control error of err is a *GaveUp.
func IsGaveUp(err error) bool {
	_, ok := control(err).(*GaveUp) //nolint:errorlint // control has looked through what wraps it
	return ok
}

// control returns the outermost control error in the tree of err, depth first, or nil.
func control(err error) error {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // the tree is walked here, level by level
		case *permanent, *retryAfter, *notBefore, *GaveUp:
			return err
		case interface{ Unwrap() []error }:
			for _, child := range e.Unwrap() {
				if c := control(child); c != nil {
					return c
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}
