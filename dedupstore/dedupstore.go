// Package dedupstore is the contract between the code that consumes a message and the database that remembers it: a
// Store records a Key and runs a function in one transaction, so that what the function writes takes effect once per
// key.
//
// The package imports the standard library only. Stores are packages of their own (pgxstore, memstore); package
// storetest is the contract as a test suite that any store runs.
//
//	key := dedupstore.Key{Consumer: "billing", Event: "confirmed-A-1"}
//	ran, err := store.Once(ctx, key, func(ctx context.Context, tx pgx.Tx) error {
//		return charge(ctx, tx) // runs for the first call with the key only
//	})
package dedupstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a Key, in bytes. Together they stay below the 2,704 bytes that a PostgreSQL B-tree accepts for one index
// row.
const (
	MaxConsumerLen = 512
	MaxEventLen    = 1024
)

// Key names one effect of one event: rows of the same event for two consumers are two effects.
type Key struct {
	Consumer string // names the effect, not the process or the Go type: renaming it applies redelivered events again
	Event    string // unique among all events that Consumer sees; see docs/configuration.md on where ids come from
}

// String returns the key as it stands in logs: consumer, a space, and the event quoted.
func (k Key) String() string { return fmt.Sprintf("%s %q", k.Consumer, k.Event) }

// Validate reports whether every store can hold k as it is. The error wraps ErrInvalidKey, says what to change, and
// does not repeat the id.
func (k Key) Validate() error {
	return errors.Join(
		validate("consumer", k.Consumer, MaxConsumerLen, consumerRemedies),
		validate("event id", k.Event, MaxEventLen, eventRemedies),
	)
}

// remedies say what to do about a part of a key that is empty, too long, or no text.
type remedies struct{ empty, long, binary string }

var (
	consumerRemedies = remedies{
		empty:  "set Topic.Consumer to a name of the effect",
		long:   "set Topic.Consumer to a shorter name of the effect",
		binary: "set Topic.Consumer to a name in plain text",
	}
	eventRemedies = remedies{
		empty:  "every event needs an id of its own",
		long:   "use a shorter id or a hash of it",
		binary: "encode binary ids, in hex for example",
	}
)

func validate(what, s string, limit int, do remedies) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: the %s is empty: %s", ErrInvalidKey, what, do.empty)
	case len(s) > limit:
		return fmt.Errorf("%w: the %s has %d bytes, at most %d are allowed: %s", ErrInvalidKey, what, len(s), limit, do.long)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: the %s is not UTF-8: %s", ErrInvalidKey, what, do.binary)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%w: the %s contains a NUL byte, which PostgreSQL's text cannot hold: %s", ErrInvalidKey, what,
			do.binary)
	}
	return nil
}

// Store remembers keys in the database in which Tx is a transaction.
//
// A Store must be safe for concurrent use, by many goroutines and by many processes on the same database. Calls for the
// same key wait for each other; they must not wait for ever for an owner that hangs.
//
// Implementations outside this module are welcome: this interface does not change within a major version, new abilities
// are optional interfaces.
type Store[Tx any] interface {
	// Once records key and runs fn in one transaction. ran reports whether fn ran and its transaction committed; it is
	// false with a nil error if key was recorded before, in which case fn did not run.
	//
	// Once makes one attempt: whoever retries calls it again. fn may have run in an attempt that was rolled back; at most
	// one attempt is ever committed. Once must
	//
	//   - commit the record and everything that fn wrote through tx together, or nothing of both;
	//   - roll back if fn returns an error (returned as it is, or wrapped), if fn panics (the panic goes on), and if
	//     ctx is done when fn returns, even if it returned nil;
	//   - roll back, and return an error, if a statement of fn failed or the connection was lost although fn returned nil,
	//     unless fn confined the failure, in a savepoint for example;
	//   - wait while another transaction holds the same key, then skip if that one committed, or run fn if it rolled back;
	//     a wait that it gives up ends with an error that wraps ErrLocked, one that ctx ends with one of class Unavailable;
	//   - return an error that wraps ErrInvalidKey, and write nothing, for a key that Validate refuses;
	//   - return an error that wraps ErrOutcomeUnknown if it cannot know whether its transaction was committed;
	//   - return an error that wraps ErrTxEnded, without recording anything itself, if fn ended the transaction;
	//   - return errors of its own that do not repeat the event's id, and that ClassOf can tell apart.
	//
	// Once must not keep or use tx, and fn must not, after fn has returned.
	Once(ctx context.Context, key Key, fn func(ctx context.Context, tx Tx) error) (ran bool, err error)
}

// Checker is implemented by stores that can tell, before the first message, that they would fail: a table or a column
// is missing, a privilege is missing. The error says what to run; it wraps ErrUnavailable if the database did not
// answer. The consumer's runner calls it at its start.
type Checker interface {
	Check(ctx context.Context) error
}

// The errors that callers tell apart. ClassOf knows the class of each.
var (
	// ErrInvalidKey is returned for a key that no attempt can record: empty, too long, not valid UTF-8 text, or refused by
	// the types and checks of the table's columns. It is Permanent.
	ErrInvalidKey = WithClass(Permanent, named("invalid_key", "invalid key"))

	// ErrTooOld is returned for an event that is older than the records which are kept, so that nobody knows whether it
	// has taken effect. It is Permanent.
	ErrTooOld = WithClass(Permanent, named("too_old", "the event is older than the window in which repetitions are known"))

	// ErrTxEnded is returned when fn committed or rolled back the transaction, which belongs to the store. It is
	// Permanent.
	ErrTxEnded = WithClass(Permanent,
		named("transaction_ended", "the function ended the transaction, which belongs to the store: "+
			"if it was committed, its effect stands with its record as far as it had come, and is not repeated; "+
			"what was written after its end stands without a record; remove the function's Commit, Rollback or COMMIT"))

	// ErrLocked is returned when another transaction has held the key, or a lock of the table, for longer than the store
	// waits. It is Transient.
	ErrLocked = WithClass(Transient, named("locked", "another transaction holds the key"))

	// ErrUnavailable is returned when the database cannot be reached now, but may be later: it is worth asking again. It
	// is Unavailable.
	ErrUnavailable = WithClass(Unavailable, errors.New("the database cannot be reached"))

	// ErrOutcomeUnknown is returned when the connection or the deadline was lost during COMMIT: the transaction may have
	// been committed or not. The cure is to call Once again with the same key: the record decides. It is OutcomeUnknown.
	ErrOutcomeUnknown = WithClass(OutcomeUnknown, named("outcome_unknown", "the outcome of the commit is unknown"))
)

type contextKey struct{}

// WithKey returns a context that carries key to KeyFrom. Whoever calls Once sets it on the context of fn.
func WithKey(ctx context.Context, key Key) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

// KeyFrom returns the key of the effect that is being run, for keys that are derived from it: those of calls to other
// services, for example.
func KeyFrom(ctx context.Context) (Key, bool) {
	key, ok := ctx.Value(contextKey{}).(Key)
	return key, ok
}
