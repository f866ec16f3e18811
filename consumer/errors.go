package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Permanent marks err as one that no further attempt will cure. Retry gives up at once and a dead-letter middleware takes the
// message; without either, the topic's OnFailure applies. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (e *permanent) Error() string { return e.err.Error() }
func (e *permanent) Unwrap() error { return e.err }

// RetryAfter asks for another attempt, not before d has passed. The runner parks the message (and what must stay behind it in
// order); nobody waits in a goroutine. It is not a failure: OnFailure does not see it. RetryAfter(d, nil) is nil.
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

// GaveUp is Retry's last word: all attempts have failed, the last one with Err.
type GaveUp struct {
	Attempts int
	Err      error
}

func (e *GaveUp) Error() string {
	return fmt.Sprintf("gave up after %d attempts: %v", e.Attempts, e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *GaveUp) Unwrap() error { return e.Err }

// Panic is the error made of a panic in a handler.
type Panic struct {
	Value any    // what was passed to panic; nil if the handler ended its goroutine with runtime.Goexit
	Stack []byte // of the panicking goroutine, as debug.Stack returns it
}

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

// IsPermanent reports whether err asks for no further attempt. Where Permanent, RetryAfter and GaveUp are nested, the
// outermost decides.
func IsPermanent(err error) bool {
	_, ok := control(err).(*permanent) //nolint:errorlint // control has looked through what wraps it
	return ok
}

// Delay returns how long err asks to wait, and whether its outermost control error is a RetryAfter.
func Delay(err error) (d time.Duration, ok bool) {
	if e, ok := control(err).(*retryAfter); ok { //nolint:errorlint // control has looked through what wraps it
		return e.delay, true
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
		case *permanent, *retryAfter, *GaveUp:
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
