package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/safelog"
)

// CrashLoopConfig is what can be chosen about CrashLoop. Nil means all defaults.
type CrashLoopConfig struct {
	// Limit is how often the process may end while a message is handled, until the message is given up: counted ends, of
	// which the first, in the midst of the work, is none. Defaults to 3: a restart, one more to be sure, and one for bad
	// luck.
	Limit int

	// Logger is told when a count could not be taken back, as often as that happens: the message is then under suspicion
	// after the next start, though it did not end the process. Defaults to slog.Default().
	Logger *slog.Logger
}

const defaultCrashLimit = 3

// ErrCrashLoop is wrapped by the permanent error for a message whose handling has ended the process as often as
// CrashLoopConfig.Limit says.
var ErrCrashLoop = errtype.New("crash_loop", "the process ended each time while this message was handled")

// CrashLoop returns a middleware against messages whose handling ends the process: by os.Exit, for want of memory, by a
// panic in a goroutine of the handler's own. Nothing in the process can catch that; it is delivered again after the
// restart, and again.
//
// Right after a partition was assigned, when what was in work at a crash is delivered again, CrashLoop counts each
// message in a committed transaction of starts before it is handled, and forgets it when that has returned, well or
// not. What is found counted after the next start may be what ended the process, or was in work beside it: such
// messages are handled one at a time, each with no other counted one beside it in this process, so that the count of an
// innocent one does not rise with the guilty. A message that was found with a count of Limit is not handled any more:
// the answer is a permanent error that wraps ErrCrashLoop, for DeadLetter outside, or for OnFailure. It stays so,
// whatever becomes of the handler, until its row is deleted: Redrive does not look at it, and a message that is
// redelivered after that is a duplicate.
//
// As soon as so many messages of the partition have been handled as can have been in work at the crash (one in
// PartitionOrder, Limits.PartitionMessages otherwise), the rest are handled without being counted, until the partition
// is assigned again. Messages that are recorded as processed are not counted either.
//
// Use one CrashLoop for all topics of a process that may have such a handler: those of different ones do not know of
// each other.
func CrashLoop(starts deadletter.Starts, cfg *CrashLoopConfig) consumer.Middleware {
	if cfg == nil {
		cfg = &CrashLoopConfig{}
	}
	c := &crashLoop{starts: starts, limit: cmp.Or(cfg.Limit, defaultCrashLimit), gate: &gate{},
		log: safelog.Logger(cfg.Logger)}
	c.invalid = c.validate()
	return func(next consumer.Handler) consumer.Handler {
		return &crashLoop{next: next, starts: c.starts, limit: c.limit, gate: c.gate, log: c.log, invalid: c.invalid}
	}
}

type crashLoop struct {
	next    consumer.Handler
	starts  deadletter.Starts
	limit   int
	gate    *gate
	log     *slog.Logger
	invalid error // what is wrong with the configuration

	declared
	partitions sync.Map // *suspicion by partition
}

func (c *crashLoop) validate() error {
	var errs []error
	if c.starts == nil {
		errs = append(errs, errors.New("middleware.CrashLoop: starts is nil: pass pgxdeadletter.New(pool, nil).Starts(), for example"))
	}
	if c.limit < 1 {
		errs = append(errs, fmt.Errorf("middleware.CrashLoop: CrashLoopConfig.Limit is %d: make it at least 1, or 0 for the default", c.limit))
	}
	return errors.Join(errs...)
}

// Unwrap implements consumer.Wrapper.
func (c *crashLoop) Unwrap() consumer.Handler { return c.next }

// Link implements consumer.Linker.
func (c *crashLoop) Link() consumer.Link { return consumer.LinkCrashLoop }

// Validate implements consumer.Validator.
func (c *crashLoop) Validate([]consumer.Handler) error {
	c.declare()
	return c.invalid
}

// Check implements consumer.Checker.
func (c *crashLoop) Check(ctx context.Context) error {
	if c.invalid != nil {
		return c.invalid
	}
	return checkIfAble(ctx, c.starts)
}

// Assigned implements consumer.Assignee.
func (c *crashLoop) Assigned(_ string, partition int32, inFlight int) {
	s := &suspicion{}
	s.left.Store(int64(inFlight))
	c.partitions.Store(partition, s)
}

// suspicion is what is held against the messages of a partition since it was assigned.
type suspicion struct {
	left atomic.Int64 // messages to be handled until there is none

	mu     sync.Mutex
	counts map[string]int // of events that were counted before; nil before they are read
}

// Handle implements consumer.Handler.
func (c *crashLoop) Handle(ctx context.Context, msg *consumer.Message) error {
	if c.invalid != nil {
		return c.invalid
	}
	c.reached(ctx, msg, consumer.LinkCrashLoop)
	s, _ := c.partitions.Load(msg.Partition)
	if s, ok := s.(*suspicion); ok && s.left.Load() > 0 {
		return c.watched(ctx, msg, s)
	}
	return c.next.Handle(ctx, msg)
}

// watched handles a message that may end the process.
func (c *crashLoop) watched(ctx context.Context, msg *consumer.Message, s *suspicion) error {
	key := dedupstore.Key{Consumer: msg.Consumer, Event: eventsOf(msg, nil)[0]}
	if key.Validate() != nil {
		key.Event = deadletter.Place(msg)
	}
	before, err := s.before(ctx, c.starts, key)
	if err != nil {
		return again(msg, err)
	}
	if before >= c.limit {
		return consumer.Permanent(fmt.Errorf("%w, %d times: repair the handler, then redrive the dead letter, or delete the row of the event from started_message", ErrCrashLoop, before))
	}
	alone := before > 0
	if !c.gate.enter(alone, time.Now()) {
		return again(msg, errNotAlone)
	}
	defer c.gate.leave(alone)
	n, err := c.starts.Begin(ctx, key)
	if err != nil {
		return again(msg, err)
	}
	if n > 0 || before > 0 { // else it is a duplicate, which is not handled, and was not counted
		defer c.end(ctx, msg, key, s)
	}
	err = consumer.SafeError(c.next.Handle(ctx, msg))
	if err == nil && n > 0 {
		s.left.Add(-1)
	}
	return err
}

// before returns the count of key from before this partition was assigned.
func (s *suspicion) before(ctx context.Context, starts deadletter.Starts, key dedupstore.Key) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		counts, err := starts.Pending(ctx, key.Consumer)
		if err != nil {
			return 0, err
		}
		s.counts = counts
	}
	return s.counts[key.Event], nil
}

// endTimeout bounds how long a message waits for its count to be forgotten. One that is not is under suspicion once
// more.
const endTimeout = 5 * time.Second

func (c *crashLoop) end(ctx context.Context, msg *consumer.Message, key dedupstore.Key, s *suspicion) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := c.starts.End(ctx, key); err != nil {
		c.log.WarnContext(ctx, "einmal: the start of a message that did not end the process could not be forgotten: it is under suspicion after the next start",
			slog.String(string(names.Topic), msg.Topic), slog.String(string(names.Partition), strconv.Itoa(int(msg.Partition))),
			slog.Int64(string(names.Offset), msg.Offset),
			slog.String(string(names.ErrorType), errtype.Of(err)), slog.String("error", msg.ErrorText(err, maxErrorText)))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, key.Event)
}

var errNotAlone = errors.New("a message that may have ended the process is handled with no other beside it")

// again has the message come again. It is no attempt that counts for Retry.
func again(msg *consumer.Message, err error) error {
	n := excusedBefore(msg.LastError) + 1
	ceiling := againSoon.ceiling(n)
	return consumer.RetryAfter(ceiling/2+jitter(ceiling/2), excuse(n, err))
}

var againSoon = RetryConfig{Base: 50 * time.Millisecond, Max: time.Second}

// gate lets in many, or one alone.
type gate struct {
	mu     sync.Mutex
	inside int
	alone  bool
	wanted time.Time // when one was last refused that must be alone
}

// enter does not wait. One that must be alone has precedence: for a while after it was refused nobody else is let in.
func (g *gate) enter(alone bool, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.alone, !alone && now.Sub(g.wanted) < 2*againSoon.Max:
		return false
	case alone && g.inside > 0:
		g.wanted = now
		return false
	}
	if alone {
		g.wanted = time.Time{}
	}
	g.inside++
	g.alone = alone
	return true
}

func (g *gate) leave(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if alone {
		g.alone = false
	}
}
