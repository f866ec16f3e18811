package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// BEGIN, time-outs and record are one round trip, a statement of the function is one, COMMIT is one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool, dialer := open(t).faulty(inMode(mode))
			store := pgxstore.New(pool, nil)
			trips := func(event string, wantRan bool, fn func(context.Context, pgx.Tx) error) int {
				before := dialer.Trips()
				if ran, err := store.Once(t.Context(), key(event), fn); ran != wantRan || err != nil {
					t.Fatalf("Once() = %v, %v, want %v", ran, err, wantRan)
				}
				return dialer.Trips() - before
			}
			nothing := func(context.Context, pgx.Tx) error { return nil }
			trips("warm up", true, writes("warm up"))

			describes := 0 // extra trips of a mode that asks for each statement's description
			if mode == pgx.QueryExecModeDescribeExec {
				describes = 1
			}
			if got, want := trips("first", true, nothing), 2+describes; got != want {
				t.Errorf("without a statement in the function: %d round trips, want %d", got, want)
			}
			if got, want := trips("second", true, writes("second")), 3+2*describes; got != want {
				t.Errorf("with one statement in the function: %d round trips, want %d", got, want)
			}
			if got, want := trips("second", false, writes("second")), 2+describes; got != want {
				t.Errorf("duplicate: %d round trips, want %d", got, want)
			}
		})
	}
}
