package gather

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Backend is what a Gatherer needs of a store. It must be safe for concurrent use.
type Backend[Tx any] interface {
	// Once runs a single call in a transaction of its own, as the store does without groups.
	Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, Tx) error) (ran bool, err error)

	// Begin records keys, which differ, in one transaction, and reports for each whether it is fresh. It bounds its time
	// by itself. If there is an error nothing stays of the transaction.
	Begin(ctx context.Context, keys []dedupstore.Key) (tx Transaction[Tx], fresh []bool, err error)

	// Fault says whom an error of Begin, Run or Commit concerns.
	Fault(err error) Fault

	// Waiting is the error of a call whose context was done before its function ran.
	Waiting(ctx context.Context) error
}

// Transaction is the transaction of a group. Its methods are called one at a time, but for Abandon, and for Run with
// Config.AtOnce.
type Transaction[Tx any] interface {
	// Run calls the function of the group's member at place, and reports why its transaction must not be committed.
	Run(ctx context.Context, place int, fn func(context.Context, Tx) error) error

	// Commit deletes the records of keys that were fresh and whose functions have not run, and commits. A *Blame is an
	// error that concerns one member.
	Commit(back []dedupstore.Key) error

	// Ended takes back the records of keys whose functions have not run, after a function has ended the transaction by
	// itself: they may be committed. Rollback follows.
	Ended(keys []dedupstore.Key)

	// Rollback ends the transaction, and does nothing after a Commit. Its connection is not used after it has returned.
	Rollback()

	// Abandon ends a transaction whose function hangs, so that its records are free for others. It may be called while Run
	// is under way. Rollback follows when Run has returned, if it ever does.
	Abandon()
}

// Fault says whom a failure concerns.
type Fault int

// The faults.
const (
	// OfCall is a failure of the call whose function ran.
	OfCall Fault = iota
	// OfNobody is a deadlock or a serialization failure: all calls come again, one group at a time.
	OfNobody
	// OfAll is a failure that all calls of the group meet: the database is away, or the outcome of the commit is unknown.
	OfAll
	// OfSome is a failure of a call that the error does not name: the group is halved.
	OfSome
)

// Blame is an error of Commit that concerns the member at Place, as an error of its function would: a statement of its
// that was queued.
type Blame struct {
	Place int
	Err   error
}

func (b *Blame) Error() string { return b.Err.Error() }
func (b *Blame) Unwrap() error { return b.Err }
