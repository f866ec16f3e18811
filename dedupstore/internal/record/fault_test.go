package record

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
)

// Whom a failure of a group concerns: all run again, some do, or it is one call's own.
func TestFaultOf(t *testing.T) {
	t.Parallel()
	deadlock := &pgconn.PgError{Code: "40P01"}
	away := dedupstore.WithClass(dedupstore.Unavailable, errors.New("away"))
	for _, c := range []struct {
		err  error
		want gather.Fault
	}{
		{deadlock, gather.OfNobody},
		{GroupError(deadlock), gather.OfNobody},
		{fmt.Errorf("%w: %w", dedupstore.ErrOutcomeUnknown, deadlock), gather.OfAll},
		{dedupstore.ErrOutcomeUnknown, gather.OfAll},
		{GroupError(dedupstore.ErrOutcomeUnknown), gather.OfAll},
		{GroupError(away), gather.OfAll},
		{away, gather.OfCall},
		{GroupError(errors.New("a key is refused")), gather.OfSome},
		{errors.New("the function's own"), gather.OfCall},
		{ErrSilent, gather.OfSome},
		{ErrSessionChanged, gather.OfSome},
	} {
		if got := FaultOf(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
