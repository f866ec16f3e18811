package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// SafeError returns err, or a *Panic in its place if one of its methods (Error, Unwrap, Is, As) panics, or if it wraps
// itself: an error type with a nil pointer inside does so, and would take whoever looks at it along. What it asks for
// (Permanent, RetryAfter) stays if it can be found. The runner and the links of package middleware call it on the
// errors of what is inside of them, before they look at these.
func SafeError(err error) error {
	if err == nil {
		return nil
	}
	why := unsafeMethod(err)
	if why == "" {
		return err
	}
	safe := &Panic{Value: fmt.Sprintf("%s, of an error of type %T", why, err), Stack: debug.Stack()}
	if why == endless {
		return safe
	}
	return asked(err, safe)
}

// asked gives safe what err asks for, if that can be found out.
func asked(err, safe error) (same error) {
	defer func() {
		if recover() != nil {
			same = safe
		}
	}()
	if d, ok := Delay(err); ok {
		return RetryAfter(d, safe)
	}
	if IsPermanent(err) {
		return Permanent(safe)
	}
	return safe
}

// maxWrapped is how many errors are looked at inside one. More than that wrap themselves.
const maxWrapped = 10_000

const endless = "Unwrap does not end"

// unsafeMethod names the method that panics, in err or in what it wraps, or is "".
func unsafeMethod(err error) (method string) {
	defer func() {
		if recover() != nil {
			method += " panics"
		}
	}()
	method = "Error"
	_ = err.Error()
	method = "Unwrap"
	n := 0
	var walk func(err error) bool
	walk = func(err error) (ends bool) {
		for ; err != nil; err = errors.Unwrap(err) {
			if n++; n > maxWrapped {
				return false
			}
			if many, ok := err.(interface{ Unwrap() []error }); ok {
				for _, inner := range many.Unwrap() {
					if !walk(inner) {
						return false
					}
				}
			}
		}
		return true
	}
	if !walk(err) {
		return endless
	}
	method = "Is or As"
	_ = errors.Is(err, errAsked)
	var nobody *nobody
	_ = errors.As(err, &nobody)
	return ""
}

// errAsked and nobody are what errors are asked for to see whether they bear it.
var errAsked = errors.New("asked for")

type nobody struct{ error }
