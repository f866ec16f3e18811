package dedupstore

import (
	"errors"
	"fmt"
)

// Class says what an error of a Store asks for. Retry and users ask ClassOf for it, stores set it by WithClass.
type Class int

// The classes. All but Permanent and Unclassified say that the event is not to blame: it must not be given up for them.
const (
	// Unclassified is an error of the function, or one that the store knows nothing about.
	Unclassified Class = iota

	// Transient asks for another attempt soon: the transaction lost against another one, by a deadlock, a serialization
	// failure, or a lock that it did not get in time.
	Transient

	// Unavailable asks for another attempt on another connection, when the database is back: the connection was lost, or
	// the server cannot be reached, starts, stops, is out of connections, memory or disk, or has become a replica. So is a
	// call whose context ended while it waited for a connection, for BEGIN or for a lock, before its function began.
	Unavailable

	// OutcomeUnknown asks for another attempt with the same key, which finds out: see ErrOutcomeUnknown.
	OutcomeUnknown

	// Misconfigured asks for an operator, and then for another attempt: a table, a column, an index, a partition or a
	// privilege is missing, or the store's configuration contradicts itself. The error says what to do.
	Misconfigured

	// Permanent asks for no other attempt: this key cannot be recorded, or the function is wrong.
	Permanent
)

// String returns the class in one lower-case word or two.
func (c Class) String() string {
	names := [...]string{"unclassified", "transient", "unavailable", "outcome_unknown", "misconfigured", "permanent"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return names[c]
}

// WithClass gives err a class and changes nothing else: its text stays, and what it wraps is still found. WithClass of
// nil is nil.
func WithClass(class Class, err error) error {
	if err == nil {
		return nil
	}
	return &classified{err, class}
}

type classified struct {
	error
	class Class
}

func (e *classified) Unwrap() error { return e.error }

// ErrorClass tells the class to those who do not import this package.
func (e *classified) ErrorClass() string {
	if e.class == Unclassified {
		return ""
	}
	return e.class.String()
}

// named returns an error that has a name for error.type.
func named(name, text string) error { return &namedError{name, text} }

type namedError struct{ name, text string }

func (e *namedError) Error() string     { return e.text }
func (e *namedError) ErrorType() string { return e.name }

// ClassOf returns the class of err. Where several are nested, the outermost decides. The errors of this package have
// their classes by themselves: an error that wraps one of them needs no other.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*classified](err); ok {
		return e.class
	}
	return Unclassified
}
