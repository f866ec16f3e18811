package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/redact"
)

// ErrHandlersStuck is wrapped by Run's error when handlers had not returned a second after their contexts were
// cancelled. They go on running: the caller should end the process soon, and nothing that they use should be closed
// before. Their messages are not marked, and will be delivered again.
var ErrHandlersStuck = errors.New("einmal: handlers did not return after their context was cancelled")

// ErrRunTwice is returned by the second call of Run: a Consumer lives once.
var ErrRunTwice = errors.New("einmal: Run was called before: make a new Consumer with New")

// StopError is what Run returns when a message failed in a topic whose OnFailure is Stop. The message stays
// uncommitted: it is the first to be delivered after a restart.
type StopError struct {
	Topic     string
	Partition int32
	Offset    int64
	Err       error // what the chain returned

	text string // of Err, without what it repeats of the message; "" if nobody has seen to that
}

// newStopError returns the error about a message that failed with err.
func newStopError(msg *Message, err error) *StopError {
	return &StopError{Topic: msg.Topic, Partition: msg.Partition, Offset: msg.Offset, Err: err,
		text: msg.ErrorText(err, maxErrorText)}
}

// Error has the text of Err as Message.ErrorText makes it, at most 1,024 bytes of it: it is what main logs.
func (e *StopError) Error() string {
	text := e.text
	if text == "" && e.Err != nil {
		text = redact.Text(e.Err.Error(), maxErrorText)
	}
	return fmt.Sprintf("einmal: stopped at %s@%d, which failed: %s", partitionName(e.Topic, e.Partition), e.Offset, text)
}

// Unwrap returns what the chain returned.
func (e *StopError) Unwrap() error { return e.Err }

// Consumer is one member of a consumer group.
type Consumer struct {
	cfg      Config
	sarama   *sarama.Config
	dialer   *kafkaconf.Dialer
	strategy *strategy
	topics   map[string]*topic

	sessionTotals sessionTotals
	unread        unreads
	outages       outages
	lines         lineLimit
	starting      atomic.Pointer[waits]
	cluster       atomic.Pointer[groupClient] // nil before the servers have answered
	userPauses    userPauses

	abort     chan struct{} // closed by Abort
	abortOnce sync.Once

	mu     sync.Mutex
	phase  Phase
	claims map[*claim]struct{}
}

// New returns a Consumer, or all errors of the configuration at once, each a *ConfigError that says what to change. It
// does no I/O: what only the servers can tell is checked by Run.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	st := &strategy{kind: cfg.Rebalance}
	topics, sc, err := validate(cfg, st)
	if err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, sarama: sc, dialer: kafkaconf.NewDialer(sc), strategy: st, topics: topics,
		abort: make(chan struct{}), phase: Created, claims: map[*claim]struct{}{}}, nil
}

// Run is New, then Consumer.Run.
func Run(ctx context.Context, cfg Config) error {
	c, err := New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run joins the group and handles messages until ctx is done; then it drains, leaves the group and returns nil. Only
// when it has returned may the caller close what the handlers use, a pool for example.
//
// It returns an error if the start fails (all that is wrong at once), if a message failed and its topic's OnFailure is
// Stop (a *StopError), if the broker refuses this member for good, and if handlers do not return (ErrHandlersStuck).
// What a restart or another broker can cure it survives: it logs and tries again.
//
// The handlers' contexts carry the values of ctx, but not its end: they are cancelled when the time to drain is over.
// Run does not touch signals: use signal.NotifyContext.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.change(Starting, Created) {
		return ErrRunTwice
	}
	defer c.setPhase(Stopped)
	r, err := c.start(ctx)
	if err != nil {
		return fmt.Errorf("einmal: cannot start: %w", err)
	}
	if r == nil {
		return nil // ctx ended during the start
	}
	defer r.close()
	if err = r.consume(); errors.Is(err, ErrHandlersStuck) {
		return err
	}
	return errors.Join(err, r.stuckError())
}

func (c *Consumer) setPhase(p Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
}

// Abort cuts a drain short, at a second signal for example: it ends Run as the end of its ctx does, and cancels the
// handlers' contexts at once, so that what is in work rolls back and is delivered again. It may be called at any time,
// and returns at once; Run returns when the handlers have, or a second later.
func (c *Consumer) Abort() { c.abortOnce.Do(func() { close(c.abort) }) }

// change sets the phase if it is one of those that may change to it.
func (c *Consumer) change(to Phase, from ...Phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(from, c.phase) {
		return false
	}
	c.phase = to
	return true
}

func (c *Consumer) currentPhase() Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase
}

func (c *Consumer) allClaims() []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.claims))
}

// addClaim makes the claim known. One that comes while the Consumer drains starts nothing.
func (c *Consumer) addClaim(cl *claim) {
	c.mu.Lock()
	c.claims[cl] = struct{}{}
	draining := c.phase == Draining
	c.mu.Unlock()
	if draining {
		cl.stop()
	}
}

func (c *Consumer) removeClaim(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, cl)
}

func stuckError(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrHandlersStuck, strings.Join(names, ", "))
}
