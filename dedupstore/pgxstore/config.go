package pgxstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema in which processed_event stands, as it is spelled in the catalogue, without quotes. By default
	// the search_path finds the table.
	Schema string

	// LockTimeout is how long a call waits for another transaction that holds its key, and for any other lock that the
	// record needs; then it fails with an error that asks for another attempt. It does not apply to the function's
	// statements. It bounds how long a connection is kept from other events. Defaults to 5 s: longer than most functions
	// run, much shorter than IdleTimeout.
	LockTimeout time.Duration

	// IdleTimeout is how long the function may leave the transaction alone, between two of its statements or before the
	// first: for that long, an owner that is frozen blocks its successor. Then the server ends the session
	// (idle_in_transaction_session_timeout), which rolls back. It must exceed the longest pause that a function takes for
	// something else, such as a call of another service. Defaults to 60 s: longer than the usual time-outs of such
	// calls.
	IdleTimeout time.Duration

	// CommitTimeout is how long COMMIT may take, and ROLLBACK, and, on top of LockTimeout, the record. It does not depend on
	// the context of Once, which may well end then: a COMMIT that is cut short has an unknown outcome. Defaults to 5 s: a disk
	// or a synchronous replica that takes longer needs attention.
	CommitTimeout time.Duration

	// Logger is told once when calls of Once wait for each other because the pool is small. Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultLockTimeout   = 5 * time.Second
	defaultIdleTimeout   = 60 * time.Second
	defaultCommitTimeout = 5 * time.Second

	// maxIdentifier is PostgreSQL's limit in bytes; it cuts longer names off and says so in a notice only.
	maxIdentifier = 63
)

func (c *Config) withDefaults() Config {
	var full Config
	if c != nil {
		full = *c
	}
	full.LockTimeout = cmp.Or(full.LockTimeout, defaultLockTimeout)
	full.IdleTimeout = cmp.Or(full.IdleTimeout, defaultIdleTimeout)
	full.CommitTimeout = cmp.Or(full.CommitTimeout, defaultCommitTimeout)
	full.Logger = cmp.Or(full.Logger, slog.Default())
	return full
}

// recordTimeout bounds the first round trip.
func (c *Config) recordTimeout() time.Duration { return c.LockTimeout + c.CommitTimeout }

func (c *Config) validate() error {
	errs := []error{
		validateTimeout("LockTimeout", c.LockTimeout, time.Millisecond),
		validateTimeout("IdleTimeout", c.IdleTimeout, time.Millisecond),
		validateTimeout("CommitTimeout", c.CommitTimeout, 1),
	}
	if len(c.Schema) > maxIdentifier || strings.IndexByte(c.Schema, 0) >= 0 {
		errs = append(errs, fmt.Errorf("invalid Config.Schema: %d bytes: PostgreSQL allows names of up to %d bytes, none of them NUL", len(c.Schema), maxIdentifier))
	}
	return errors.Join(errs...)
}

// validateTimeout refuses what PostgreSQL, which counts milliseconds in 32 bits, would take for no time-out at all.
func validateTimeout(field string, d, least time.Duration) error {
	const most = math.MaxInt32 * time.Millisecond
	if d < least || d > most {
		return fmt.Errorf("invalid Config.%s: %v: set it between %v and %v, or leave it zero for the default", field, d, least, most)
	}
	return nil
}
