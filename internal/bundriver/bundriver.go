// Package bundriver looks at the driver under bun: for the stores of bun's users.
package bundriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/dedupstore"
)

// preparedSQL finds itself among the session's prepared statements, if the driver prepares what it is given.
const preparedSQL = "select count(*)::text from pg_prepared_statements where statement like '%einmal looks for this text%'"

// PreparesNothing reports a driver that prepares each text, and keeps it: bun writes the values into the texts. ask
// returns the only value of the only row of a query of PostgreSQL. name is the package that asks, and begins the error.
func PreparesNothing(ctx context.Context, name string, ask func(ctx context.Context, sql string, args ...any) (string,
	error)) error {
	n, err := ask(ctx, preparedSQL)
	switch {
	case err != nil:
		return dedupstore.WithClass(dedupstore.Unavailable, fmt.Errorf("%s: look for prepared statements: %w", name, err))
	case n != "0":
		return dedupstore.WithClass(dedupstore.Misconfigured,
			errors.New(name+": the driver prepares every text, and bun writes the values into the texts, so that every session keeps hundreds of useless statements: set default_query_exec_mode=exec in the URL"))
	}
	return nil
}
