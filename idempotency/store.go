package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/einmal-go/einmal/dedupstore"
)

// maxScopeLen is the limit of a Request's scope, in bytes; that of its key is MaxKeyLen.
const maxScopeLen = 255

// Request is a request as a Store knows it.
type Request struct {
	Scope       string            // whose key it is; "" where there is one tenant only
	Key         string            // as the client named it, without its quotes
	Fingerprint [sha256.Size]byte // of all that the answer depends on
	Keep        time.Duration     // how long the answer is kept, from when it is stored
	MaxKeys     int               // how many answers may be kept for the scope; 0 is no limit
}

// Validate reports whether every store can hold r. The error wraps dedupstore.ErrInvalidKey, and repeats nothing of it.
func (r *Request) Validate() error {
	switch {
	case len(r.Scope) > maxScopeLen || !plain(r.Scope):
		return fmt.Errorf("%w: the scope has %d bytes: it must be UTF-8 text of at most %d, without NUL",
			dedupstore.ErrInvalidKey, len(r.Scope), maxScopeLen)
	case r.Key == "" || len(r.Key) > MaxKeyLen || !plain(r.Key):
		return fmt.Errorf("%w: the key has %d bytes: it must be UTF-8 text of 1 to %d, without NUL", dedupstore.ErrInvalidKey,
			len(r.Key), MaxKeyLen)
	case r.Keep <= 0:
		return fmt.Errorf("%w: an answer cannot be kept for %v: make Keep positive", dedupstore.ErrInvalidKey, r.Keep)
	}
	return nil
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Answer is what a request was answered.
type Answer struct {
	Status int // from 100 to 999
	Header http.Header
	Body   []byte

	// DropWrites has the store keep the answer, and roll back what the function has written. It is not stored.
	DropWrites bool
}

// Store remembers the answers to requests in the database in which Tx is a transaction.
//
// A Store must be safe for concurrent use, by many goroutines and by many processes on the same database. This
// interface does not change within a major version; new abilities are optional interfaces, of which dedupstore.Checker
// is one.
type Store[Tx any] interface {
	// Transactor runs what has no key.
	dedupstore.Transactor[Tx]

	// Once runs fn in a transaction and stores its answer in the same one, unless an answer to a request with that scope
	// and key is stored and has not expired: that one is returned then, replayed is true, and fn does not run.
	//
	// Once makes one attempt. fn may have run in an attempt that was rolled back; at most one is ever committed as long as
	// the answer is kept. What it commits and rolls back, and how it fails, is as dedupstore.Store says of Once, in
	// particular if ctx is done when fn returns. Once must moreover
	//
	//   - commit the answer and everything that fn wrote through tx together, or nothing of both; with Answer.DropWrites the
	//     answer alone, also where a statement of fn has failed;
	//   - return an error that wraps ErrInProgress, without waiting for it to end, while another transaction runs a function for
	//     the same scope and key; a store whose database lets one transaction write at a time may wait instead. Where the store can tell
	//     that the other one has another fingerprint, the error should wrap ErrOtherRequest;
	//   - return an error that wraps ErrOtherRequest if the answer that is stored has another fingerprint;
	//   - return from a replay the status, the header and the body that were stored, byte by byte;
	//   - see an answer on each call that begins after the one that stored it has returned, so it must not read from a replica;
	//   - return errors of its own that repeat neither scope nor key.
	//
	// Once must not keep or use tx, and fn must not, after fn has returned.
	Once(ctx context.Context, req Request, fn func(ctx context.Context, tx Tx) (Answer, error)) (answer Answer,
		replayed bool, err error)
}

// KeyCounter is a Store that keeps to Request.MaxKeys: Once returns an error that wraps ErrTooManyKeys, and runs
// nothing, if as many answers that have not expired are stored for the scope. It replays what is stored all the same.
type KeyCounter interface {
	// CountsKeys says so, and does nothing.
	CountsKeys()
}

// The errors of a Store that callers tell apart, beside those of dedupstore.
var (
	// ErrInProgress is returned while another transaction runs the request of the same key. It is dedupstore.Transient.
	ErrInProgress = dedupstore.WithClass(dedupstore.Transient, errors.New("a request with the same key is being handled"))

	// ErrTooManyKeys is returned by a KeyCounter for a request that would be one more than Request.MaxKeys. It is
	// dedupstore.Transient: answers expire.
	ErrTooManyKeys = dedupstore.WithClass(dedupstore.Transient, errors.New("too many answers are kept for the scope"))

	// ErrOtherRequest is returned for a key that was used for a request that differs. It is dedupstore.Permanent.
	ErrOtherRequest = dedupstore.WithClass(dedupstore.Permanent, errors.New("the key was used for another request"))
)
