package outboxtest_test

import (
	"testing"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
)

// The test of an outbox.Database of your own runs the suite in both modes.
func Example() {
	testDatabase := func(t *testing.T, open func(t testing.TB) outboxtest.Harness) { // TestDatabase of your package
		for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
			t.Run(string(mode), func(t *testing.T) { outboxtest.Run(t, mode, open) })
		}
	}
	_ = testDatabase
	// Output:
}
