package dedupstore

import "context"

// Transactor is implemented by stores that run a function in a transaction as Once does, without a key. A redrive of
// dead letters needs it: the event's record is there already.
type Transactor[Tx any] interface {
	// InTx runs fn in one transaction. It makes one attempt, and commits, rolls back, and fails as Once does, but for what
	// has to do with the key: nothing says afterwards whether a transaction was committed whose outcome is unknown, unless
	// fn has seen to that.
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
}
