package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// RetryConfig is what can be chosen about the pauses between attempts. Nil means all defaults.
//
// The pause after attempt n is drawn evenly from 0 to a ceiling of Base * 2^(n-1), at most Max ("full jitter": messages
// that failed together do not come back together). With the defaults 5 attempts outlast 0.75 s on average and 1.5 s at
// most, 10 attempts 26 s and 51 s, 15 attempts 1:40 min and 3:20 min.
type RetryConfig struct {
	// Base is the ceiling of the first pause. Defaults to 100 ms: what goes away by itself in a database (a deadlock, a
	// serialization failure, a lost connection) is gone by then, and a few attempts cost the partition less than a second.
	Base time.Duration

	// Max is the highest ceiling. Defaults to 30 s (to Base if that is longer): the end of a long outage is noticed within
	// half a minute, and a service that is down is not called more often than that by each partition.
	Max time.Duration
}

const (
	defaultRetryBase = 100 * time.Millisecond
	defaultRetryMax  = 30 * time.Second
)

// Retry returns a middleware that decides what follows on a failed attempt: another one, asked for with
// consumer.RetryAfter, or, after attempt number attempts, a *consumer.GaveUp with the last error in it. Retry itself
// waits for nothing: the runner parks the message.
//
// An error that is Permanent, RetryAfter or GaveUp passes: it already says what is wanted. A handler that answers with
// RetryAfter is therefore asked again as often as it wishes, beyond attempts. Every error passes unchanged once ctx is
// done: an attempt that a drain cut short has not failed. One that ran longer than Topic.ProcessingLimit has.
//
// What the event is not to blame for is no reason to give it up: errors whose dedupstore.Class is Transient,
// Unavailable, OutcomeUnknown or Misconfigured (a deadlock, a server that restarts, a missing table) are asked to be
// tried again without end, and do not count, also where they are within a RetryAfter, as those of package
// schemaregistry are. A database that is down for an hour makes no dead letters.
//
// The other attempts are counted as msg.Attempt counts them, through rebalances and restarts too. Those that do not
// count are known from msg.LastError, so a link outside that hides an error makes them count. attempts must be at least
// 1; consumer.New says so if it is not, and reports pauses that are negative or contradict each other.
func Retry(attempts int, cfg *RetryConfig) consumer.Middleware {
	r := retry{attempts: attempts}
	if cfg != nil {
		r.cfg = *cfg
	}
	r.invalid = r.validate()
	r.cfg.setDefaults()
	return func(next consumer.Handler) consumer.Handler {
		link := r
		link.next = next
		return &link
	}
}

type retry struct {
	next     consumer.Handler
	attempts int
	cfg      RetryConfig
	invalid  error // what is wrong with the configuration
}

func (r *retry) validate() error {
	var errs []error
	if r.attempts < 1 {
		errs = append(errs, fmt.Errorf("middleware.Retry: attempts is %d: "+
			"it counts the first attempt too, so make it at least 1", r.attempts))
	}
	if r.cfg.Base < 0 || r.cfg.Max < 0 {
		errs = append(errs, fmt.Errorf("middleware.Retry: RetryConfig.Base is %v, Max %v: "+
			"use positive durations, or 0 for the default", r.cfg.Base, r.cfg.Max))
	} else if r.cfg.Max != 0 && r.cfg.Max < r.cfg.Base {
		errs = append(errs, fmt.Errorf("middleware.Retry: RetryConfig.Max is %v, less than Base, %v: "+
			"make it at least as long", r.cfg.Max, r.cfg.Base))
	}
	return errors.Join(errs...)
}

func (c *RetryConfig) setDefaults() {
	if c.Base <= 0 {
		c.Base = defaultRetryBase
	}
	if c.Max <= 0 {
		c.Max = max(defaultRetryMax, c.Base)
	}
}

// Unwrap implements consumer.Wrapper.
func (r *retry) Unwrap() consumer.Handler { return r.next }

// Link implements consumer.Linker.
func (r *retry) Link() consumer.Link { return consumer.LinkRetry }

// Validate implements consumer.Validator.
func (r *retry) Validate([]consumer.Handler) error { return r.invalid }

// Handle implements consumer.Handler.
func (r *retry) Handle(ctx context.Context, msg *consumer.Message) error {
	return call(ctx, msg, r.next, func(err error) error { return r.decide(ctx, msg, err) })
}

// decide says what follows on an attempt that ended with err.
func (r *retry) decide(ctx context.Context, msg *consumer.Message, err error) error {
	excused := excusedBefore(msg.LastError)
	failures := msg.Attempt - excused
	switch {
	case err == nil, interrupted(ctx):
		return err
	case isControl(err):
		if _, again := consumer.Delay(err); again && !blamesEvent(err) { // a decoder whose schema registry is away
			excused++
		}
		return excuse(excused, err)
	case !blamesEvent(err):
		return consumer.RetryAfter(jitter(r.cfg.ceiling(excused+1)), excuse(excused+1, err))
	case failures >= r.attempts:
		return &consumer.GaveUp{Attempts: failures, Err: err}
	default:
		return consumer.RetryAfter(jitter(r.cfg.ceiling(failures)), excuse(excused, err))
	}
}

// blamesEvent reports whether err may come from the event or its handler.
func blamesEvent(err error) bool {
	class := dedupstore.ClassOf(err)
	return class == dedupstore.Unclassified || class == dedupstore.Permanent
}

// excused is an error that remembers how many attempts so far do not count.
type excused struct {
	error
	attempts int
}

func (e *excused) Unwrap() error { return e.error }

// Excused tells the runner, which carries the number to the next owner of the partition with that of all attempts.
func (e *excused) Excused() int { return e.attempts }

// excuse has err remember them, if there are any.
func excuse(attempts int, err error) error {
	if attempts == 0 {
		return err
	}
	return &excused{err, attempts}
}

// excusedBefore returns how many attempts before this one do not count.
func excusedBefore(last error) int {
	if e, ok := errors.AsType[interface {
		error
		Excused() int
	}](last); ok {
		return e.Excused()
	}
	return 0
}

// interrupted reports whether ctx was ended by something that is no fault of the attempt: a drain, a rebalance, Abort.
func interrupted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), consumer.ErrProcessingLimit)
}

func isControl(err error) bool {
	_, delayed := consumer.Delay(err)
	return delayed || consumer.IsPermanent(err) || consumer.IsGaveUp(err)
}

// ceiling returns the longest pause after that attempt: a pure function of its number, for any number.
func (c RetryConfig) ceiling(attempt int) time.Duration {
	doublings := max(attempt, 1) - 1
	if doublings >= bits.LeadingZeros64(uint64(c.Base)) { //nolint:gosec // Base is positive
		return c.Max // Base << doublings would overflow
	}
	return min(c.Base<<doublings, c.Max)
}

// jitter draws a pause from 0 to just below ceiling.
func jitter(ceiling time.Duration) time.Duration {
	return rand.N(ceiling) //nolint:gosec // no secret
}
