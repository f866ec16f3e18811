package record

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/safelog"
)

// Config is the configuration of a store. The stores' own Config types have the same fields, and their documentation.
type Config struct {
	Schema        string
	Table         string
	DoNothing     bool
	Group         int
	LockTimeout   time.Duration
	IdleTimeout   time.Duration
	CommitTimeout time.Duration
	Logger        *slog.Logger
}

const (
	defaultTable         = "processed_event"
	defaultLockTimeout   = 5 * time.Second
	defaultIdleTimeout   = 60 * time.Second
	defaultCommitTimeout = 5 * time.Second

	// maxIdentifier is PostgreSQL's limit in bytes; it cuts longer names off and says so in a notice only.
	maxIdentifier = 63
)

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	c.Table = cmp.Or(c.Table, defaultTable)
	c.LockTimeout = cmp.Or(c.LockTimeout, defaultLockTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, defaultIdleTimeout)
	c.CommitTimeout = cmp.Or(c.CommitTimeout, defaultCommitTimeout)
	c.Logger = safelog.Logger(c.Logger)
	return c
}

// RecordTimeout bounds the first round trip.
func (c Config) RecordTimeout() time.Duration { return c.LockTimeout + c.CommitTimeout }

// Validate reports all that is wrong.
func (c Config) Validate() error {
	return errors.Join(
		validateGroup(c.Group),
		validateTimeout("LockTimeout", c.LockTimeout, time.Millisecond),
		validateTimeout("IdleTimeout", c.IdleTimeout, time.Millisecond),
		validateTimeout("CommitTimeout", c.CommitTimeout, 1),
		validateName("Schema", c.Schema),
		validateName("Table", c.Table),
	)
}

func validateName(field, name string) error {
	if len(name) > maxIdentifier || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("invalid Config.%s: %d bytes: PostgreSQL allows names of up to %d bytes, none of them NUL", field,
			len(name), maxIdentifier)
	}
	return nil
}

// validateTimeout refuses what PostgreSQL, which counts milliseconds in 32 bits, would take for no time-out at all.
func validateTimeout(field string, d, least time.Duration) error {
	const most = math.MaxInt32 * time.Millisecond
	if d < least || d > most {
		return fmt.Errorf("invalid Config.%s: %v: set it between %v and %v, or leave it zero for the default", field, d,
			least, most)
	}
	return nil
}

// maxGroup keeps the statement that records a group below the size at which PostgreSQL's plans and locks cost more than
// they save.
const maxGroup = 10_000

func validateGroup(n int) error {
	if n < 0 || n > maxGroup {
		return fmt.Errorf("invalid Config.Group: %d: set it between 2 and %d, or leave it zero for a transaction per event",
			n, maxGroup)
	}
	return nil
}
