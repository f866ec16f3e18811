package pgxstore

import (
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds the table.
	Schema string

	// Table is the name of the table, as it is spelled in the catalogue, without quotes. Defaults to processed_event.
	Table string

	// DoNothing records by ON CONFLICT DO NOTHING instead of the upsert that counts redeliveries. A redelivery is cheaper
	// then, since it writes nothing; the package's documentation has the price. Where the table cannot take the upsert,
	// because it is partitioned for example, this is the way without being asked for.
	DoNothing bool

	// Group is the most calls of Once that share a transaction; 0 or 1 is one each. Calls that arrive while a transaction
	// is under way form the next one, and nobody waits for a group to fill. docs/groups.md says what it gains, and what
	// differs for the function.
	Group int

	// LockTimeout is how long a call waits for another transaction that holds its key, and for any other lock that the
	// record needs; then it fails with an error that wraps dedupstore.ErrLocked. It does not apply to the function's
	// statements. It bounds how long a connection is kept from other events. Defaults to 5 s: longer than most functions
	// run, much shorter than IdleTimeout.
	LockTimeout time.Duration

	// IdleTimeout is how long the function may leave the transaction alone, between two of its statements or before the
	// first: for that long, an owner that is frozen blocks its successor. Then the server ends the session
	// (idle_in_transaction_session_timeout), which rolls back. It must exceed the longest pause that a function takes for
	// something else, such as a call of another service. Defaults to 60 s: longer than the usual time-outs of such
	// calls.
	IdleTimeout time.Duration

	// CommitTimeout is how long COMMIT may take, and ROLLBACK, and, on top of LockTimeout, the record. It does not depend
	// on the context of Once, which may well end then: a COMMIT that is cut short has an unknown outcome. Defaults to 5 s:
	// a disk or a synchronous replica that takes longer needs attention.
	CommitTimeout time.Duration

	// Logger is told once when calls of Once wait for each other because the pool is small. Defaults to slog.Default().
	Logger *slog.Logger
}

func (c *Config) withDefaults() record.Config {
	if c == nil {
		c = &Config{}
	}
	return record.Config(*c).WithDefaults()
}
