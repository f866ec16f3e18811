package deadletter

import (
	"context"
	"errors"

	"github.com/einmal-go/einmal/dedupstore"
)

// Writer writes dead letters. It is all that middleware.DeadLetter needs; a function that writes to an outbox instead
// is a WriterFunc.
type Writer[Tx any] interface {
	// Write writes rec through tx, whose caller commits. It must not keep rec or its bytes. It must be safe for concurrent
	// use, and may be a dedupstore.Checker or a TxChecker. Its errors must not repeat a part of the message.
	Write(ctx context.Context, tx Tx, rec *Record) error
}

// TxChecker is a Writer that can tell only in a transaction whether it will work. middleware.DeadLetter asks it at the
// start, if its store is a dedupstore.Transactor.
type TxChecker[Tx any] interface {
	// CheckTx reports what would make every Write fail, a missing table for example, with what to run. It may write
	// through tx, whose caller rolls back.
	CheckTx(ctx context.Context, tx Tx) error
}

// WriterFunc is a function that is a Writer.
type WriterFunc[Tx any] func(ctx context.Context, tx Tx, rec *Record) error

// Write calls f.
func (f WriterFunc[Tx]) Write(ctx context.Context, tx Tx, rec *Record) error { return f(ctx, tx, rec) }

// Taker takes dead letters out of their table, for Redrive.
type Taker[Tx any] interface {
	// Take deletes the row through tx, whose caller commits, and returns it. It must not wait for another transaction that
	// has the row: the error wraps ErrTaken then, as it does where there is no such row.
	Take(ctx context.Context, tx Tx, id int64) (*Record, error)
}

// Keeper is what operators do with a table. Every call is a transaction of its own.
type Keeper interface {
	// List returns the dead letters of the filter whose ID is above after, in the order of their IDs, at most limit of
	// them, without their Key, Value and Headers.
	List(ctx context.Context, filter Filter, after int64, limit int) ([]*Record, error)
	// Count counts the dead letters of the filter.
	Count(ctx context.Context, filter Filter) (int64, error)
	// Get returns one dead letter with all that it has. The error wraps ErrTaken if there is none.
	Get(ctx context.Context, id int64) (*Record, error)
	// Discard deletes the dead letters of the filter for good, in several transactions, and returns how many it has
	// deleted. It leaves those that are being redriven. The events' records stay: the messages are not handled again.
	Discard(ctx context.Context, filter Filter) (int64, error)
	// Failed counts a redrive that has failed, and keeps its text. A row that is gone is no error.
	Failed(ctx context.Context, id int64, text string) error
}

// Table is a table of dead letters in the database in which Tx is a transaction.
type Table[Tx any] interface {
	Writer[Tx]
	Taker[Tx]
	Keeper
	dedupstore.Checker
}

var (
	// ErrTaken is wrapped where a dead letter is not there, or is being taken by another transaction.
	ErrTaken = errors.New("the dead letter is gone, or is being redriven by somebody else")

	// ErrTooLarge is wrapped by the error of Write for a message that is larger than the table's Config.MaxBytes, unless
	// it is to be left out. It is Misconfigured: the message stays, and the error says what to do.
	ErrTooLarge = dedupstore.WithClass(dedupstore.Misconfigured,
		errors.New("the message is larger than a dead letter may be"))

	// ErrLeftOut is wrapped by the error of a redrive of a message whose bytes were left out.
	ErrLeftOut = errors.New("the message was too large to be kept, or is not to be kept: read it from its topic, partition and offset, as long as Kafka has it")

	// ErrUnreadable is wrapped where a row holds what no writer of ours has written: it was edited by hand.
	ErrUnreadable = errors.New("the row cannot be read")
)
