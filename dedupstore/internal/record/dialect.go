package record

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Dialect is what a store asks about its database. A Dialect is safe for concurrent use.
type Dialect interface {
	Explainer
	Judge

	// Locate finds out where the table is, if it is not known. Each other call needs that, but those of Explainer.
	Locate(ctx context.Context, ask Query) error

	// Form returns how to record. It is found out by try when it is not known.
	Form(ctx context.Context, try Attempt) (Form, error)

	// Statements returns the texts to send.
	Statements(form Form) *Statements

	// Identity tells the table from all others, or is empty.
	Identity(ctx context.Context, ask Query) (string, error)

	// Examine reports all that is wrong with the table in one error, with the SQL to run.
	Examine(ctx context.Context, ask Query) error
}

// Judge says what the errors of a database mean, and whose fault they are.
type Judge interface {
	// ConnectError explains why there is no connection.
	ConnectError(err error) error

	// Silence explains a Record that said nothing, and whose transaction was rolled back: it is nil if the record is
	// there, of another transaction. ask works outside of any transaction.
	Silence(ctx context.Context, form Form, key dedupstore.Key, ask Query) error

	// RecordError explains why a key was not recorded. The transaction has been rolled back; ask works outside of it.
	RecordError(ctx context.Context, key dedupstore.Key, err error, ask Query) error

	// BeginError explains why a transaction without a key was not begun. It has been rolled back.
	BeginError(ctx context.Context, err error) error

	// FunctionError gives the function's error the class that the store knows, and leaves it as it is if it knows none.
	// lost says that the connection is gone.
	FunctionError(ctx context.Context, err error, lost bool) error

	// CommitError tells what a failed COMMIT means.
	CommitError(err error) error

	// GiveUp reports whether a connection with this error must not be used again, although it still answers: what is wrong
	// may be its session.
	GiveUp(err error) bool

	// OfTheSession reports whether another session may do better: with its own role, search_path, statement_timeout,
	// prepared statements.
	OfTheSession(err error) bool
}

// Query runs a query outside of any transaction that answers with one row of one text.
type Query func(ctx context.Context, sql string, args ...any) (string, error)

// Explainer puts what happens to any database into words and classes.
type Explainer interface {
	// Invalid is the error of a call with arguments that no attempt can cure, or nil.
	Invalid(configuration, key error) error
	// ForgetError says that a record could not be deleted, or is left all the same, or is nil. The class of err is
	// FunctionError's to find.
	ForgetError(err error, left bool) error
	// Place is the error of Places.Enter.
	Place(err error) error
	// Waiting is the error of a call that did not get a connection, because ctx was done.
	Waiting(ctx context.Context) error
	// Done is the error of a call whose context is done: its error and its cause, and what failed for it, which may be
	// nil.
	Done(ctx context.Context, err error) error
	// TxEnded adds to the function's error, if it has one that does not say so, that it ended the transaction.
	TxEnded(err error) error
	// Lost is the error of a function that returned nil although its connection was lost. err may be nil.
	Lost(err error) error
	// Swallowed is the error of a function that returned nil although one of its statements failed. err may be nil.
	Swallowed(err error) error
	// RowsOpen is the error of a function that left its connection busy.
	RowsOpen() error
	// Unknown is the error of a COMMIT that may have happened or not.
	Unknown(err error) error
}
