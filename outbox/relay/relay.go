package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// The errors that callers tell apart.
var (
	// ErrRunTwice is returned by the second call of Run: a Relay lives once.
	ErrRunTwice = errors.New("outbox: Run was called before: make a new Relay with New")
	// ErrOtherMode is wrapped by the error of Run when the table is sent by relays of the other mode. See SwitchMode.
	ErrOtherMode = errors.New("the table is sent by relays of the other mode")
)

// Relay sends what stands in the outbox. Any number of relays, in any number of processes, share the work.
type Relay struct {
	cfg    Config
	conf   *sarama.Config
	table  *table
	wake   chan struct{}
	ran    atomic.Bool
	status statusKeeper
}

// New returns a Relay, or all errors of the configuration at once, each a *ConfigError that says what to change. It
// does no I/O.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	sc, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, conf: sc, table: newTable(&cfg), wake: make(chan struct{}, 1)}, nil
}

// Run sends until ctx is done. Batches that have begun then are finished, within Config.PublishTimeout and what the
// database takes; connections to Kafka are closed, and Run returns nil: only then may the caller close the pool.
//
// It returns an error if the tables are missing or cannot be used, or are sent by relays of the other mode
// (ErrOtherMode). A database or a Kafka that does not answer is waited for; Status tells.
func (r *Relay) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return ErrRunTwice
	}
	run := newRunning(r)
	defer run.close()
	if err := run.start(ctx); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if err := run.loop(ctx); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// Wake has the relay look for rows now. Call it after a commit that wrote some, in the relay's process. It never
// blocks, and is safe for concurrent use.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
