package idempotencytest

import (
	"context"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
)

// Harness is what the suite needs of a store. The tables are of one test's own.
type Harness[Tx any] struct {
	// Store and Other are two stores on the same database, with connections of their own.
	Store, Other idempotency.Store[Tx]

	// Write writes an effect in a transaction. Effects counts those of a name that are committed.
	Write   func(ctx context.Context, tx Tx, effect string) error
	Effects func(ctx context.Context, effect string) (int, error)

	// Fail runs a statement that fails, and returns its error.
	Fail func(ctx context.Context, tx Tx) error

	// End tries to commit or to roll back the transaction, by what the driver offers.
	End func(ctx context.Context, tx Tx) error

	// Waits says that a request waits while another one of the same key runs, where the database lets one transaction
	// write at a time. FailureStays says that a transaction can be committed although one of its statements has failed.
	// Both are SQLite's.
	Waits, FailureStays bool
}

// Run runs the contract of idempotency.Store, case by case, each with a harness of its own. The cases run in parallel.
func Run[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*suite[Tx])
	}{
		{"1 an answer is stored and replayed byte by byte", (*suite[Tx]).replays},
		{"2 an error, a panic or a done context rolls everything back", (*suite[Tx]).rollsBack},
		{"3 what ends or breaks the transaction rolls everything back", (*suite[Tx]).breaks},
		{"4 DropWrites keeps the answer alone", (*suite[Tx]).drops},
		{"5 another fingerprint is refused", (*suite[Tx]).refusesOthers},
		{"6 scopes and keys have nothing to do with each other", (*suite[Tx]).separates},
		{"7 a request in progress is told", (*suite[Tx]).inProgress},
		{"8 many at once are one", (*suite[Tx]).manyAtOnce},
		{"9 an answer expires", (*suite[Tx]).expires},
		{"10 what cannot be stored is refused", (*suite[Tx]).refusesInvalid},
		{"11 a client that goes away takes its effects with it", (*suite[Tx]).clientGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&suite[Tx]{t, open(t)})
		})
	}
}
