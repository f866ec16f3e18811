package outbox

import "context"

// Database gives the relay and the operators' functions their transactions. pgxoutbox.Database and sqloutbox.Database
// are implementations; outboxtest is the suite for others. It must be safe for concurrent use.
//
// Implementations outside this module are welcome: this interface does not change within a major version, new
// abilities are optional interfaces.
type Database interface {
	// InTx runs f in a READ COMMITTED transaction on a connection of its own, commits it if f returns nil, and rolls
	// it back otherwise. It must return an error unless the server has confirmed the commit, and must return, if with
	// an error, soon after ctx is done. It makes one attempt.
	InTx(ctx context.Context, f func(ctx context.Context, tx Tx) error) error
}

// Tx is a transaction. Arguments are int64, string, []byte, bool and nil; those of the statements are $1, $2 and so
// on.
type Tx interface {
	// Exec returns how many rows were affected.
	Exec(ctx context.Context, sql string, args ...any) (int64, error)
	// Query calls row for each row of the answer, in turn, with a function that reads its columns into pointers to
	// int64, string, []byte, bool, time.Time, or pointers to those for columns that can be null. A null bytea is a
	// nil []byte, one of no bytes is not nil.
	Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error
}

// Listener wakes a relay when there may be something to send.
type Listener interface {
	// Listen calls wake for each notification, and once when it begins to hear them, until ctx is done or the
	// connection is lost. The relay calls it again after a pause.
	Listen(ctx context.Context, wake func()) error
}
