package handlertest

import "fmt"

// Point is a step of a call of Once at which a Store fails.
type Point int

// The points, in the order of the steps.
const (
	// BeforeRecord: the database is away. No transaction begins, the function does not run.
	BeforeRecord Point = iota + 1

	// AfterRecord: the connection breaks after the record. The function does not run, the record is rolled back.
	AfterRecord

	// InHandler: the function runs with a context that is done, so that whatever it does with it fails, as with a deadline
	// of its own that has passed. If it returns nil nevertheless, the transaction is committed.
	InHandler

	// AfterHandler: the function has run and returned nil; then the transaction is rolled back.
	AfterHandler

	// AtCommit: COMMIT does not reach the database, and nobody knows it: rolled back, with an error that wraps
	// dedupstore.ErrOutcomeUnknown.
	AtCommit

	// AfterCommit: the answer to COMMIT is lost: committed, with an error that wraps dedupstore.ErrOutcomeUnknown.
	AfterCommit
)

var points = []Point{BeforeRecord, AfterRecord, InHandler, AfterHandler, AtCommit, AfterCommit}

// String returns the point in words: "before the record".
func (p Point) String() string {
	switch p {
	case BeforeRecord:
		return "before the record"
	case AfterRecord:
		return "after the record"
	case InHandler:
		return "in the handler"
	case AfterHandler:
		return "after the handler"
	case AtCommit:
		return "at COMMIT"
	case AfterCommit:
		return "after COMMIT"
	default:
		return fmt.Sprintf("Point(%d)", int(p))
	}
}
