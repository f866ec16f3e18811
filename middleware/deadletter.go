package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/nils"
	"github.com/einmal-go/einmal/internal/safelog"
)

// DeadLetterConfig is what can be chosen about DeadLetter. Nil means all defaults.
type DeadLetterConfig struct {
	// Except are kinds of failure that make no dead letter: their errors go on to the topic's OnFailure, which keeps
	// trying or stops. A topic in which a message without an id means that the producer is broken may say
	// {deadletter.KindNoEventID} together with consumer.Stop.
	Except []deadletter.Kind

	// PerSecond is how many dead letters a topic writes in a second of this process, after the first ten seconds' worth of
	// them. Messages that come faster are parked, with all that is ordered behind them, and run again when it is their
	// turn: some may have been cured by then. Defaults to 10: dead letters are for exceptions, and where every message
	// fails, an hour of it should be a table that somebody can look through, not the whole topic. Negative means no limit.
	PerSecond float64

	// ErrorText makes the texts of errors for dead letters. Defaults to deadletter.Text, which masks what looks like a
	// secret or like a part of the message. What it returns is cut to deadletter.MaxText bytes.
	ErrorText func(err error, msg *consumer.Message) string

	// WithoutMessage writes dead letters without the message's key, value and headers, as those of a message that is too
	// large: for topics whose personal data must not be kept outside of them. Topic, partition and offset say where it is,
	// as long as Kafka has it. Such dead letters cannot be redriven from the table: consumer.Replay handles the message
	// again.
	WithoutMessage bool

	// Logger is told, once a minute at most, that dead letters cannot be written, or come faster than PerSecond. The dead
	// letters themselves are in the lines of Logging. Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultDeadPerSecond = 10
	deadBurst            = 10 * time.Second // so long it may take to write at once what has not been written before
	deadWriteTimeout     = 10 * time.Second
)

// deadRetry are the pauses between attempts to write a dead letter.
var deadRetry = RetryConfig{Base: time.Second, Max: time.Minute}

// DeadLetter returns a middleware that takes a message out of the way for which no attempt will help
// (consumer.Permanent), or whose attempts have all failed (*consumer.GaveUp, which Retry inside it returns). It writes
// a dead letter through dead, in one transaction of store with the record of the event: then the message has taken its
// effect, and its offset may be committed. store must be that of the Dedup inside, or one on the same table: elsewhere
// the record would not keep the handler from running after its dead letter. Other errors pass.
//
// The record's key is that of Dedup, msg.Consumer and msg.EventID. Where there is no id that can be recorded, it is the
// message's place: see deadletter.Place, or deadletter.PlaceUUID where the table refuses that, because its ids are
// UUIDs. If the key was recorded before, the effect is there already, or the dead letter was written by an earlier
// delivery: nothing is written, and msg.Result.Duplicate is set. Otherwise msg.Result.Dead is.
//
// An id that is of the form of a place, which a producer may have set on purpose, is none. A handler that ended the
// transaction itself (dedupstore.ErrTxEnded) may have committed the record of an effect that is not complete. Its dead
// letter is keyed by the place, so that this record does not hide it.
//
// As long as a dead letter cannot be written, because the database is away, its table is missing, or the message is
// larger than that takes, the message stays and is tried again, after 1 s, then twice as long each time up to 1 min:
// the answer is a consumer.RetryAfter, so that OnFailure does not see it.
//
// Check, which Run calls at its start, asks store and dead if they are a dedupstore.Checker, and dead if it is a
// deadletter.TxChecker. It refuses a store that records elsewhere than the Dedup inside, where both can tell
// (dedupstore.Identifier).
func DeadLetter[Tx any](store dedupstore.Store[Tx], dead deadletter.Writer[Tx],
	cfg *DeadLetterConfig) consumer.Middleware {
	d := &deadLetter[Tx]{store: store, dead: dead}
	if cfg != nil {
		d.cfg = *cfg
	}
	d.invalid = d.validate()
	d.cfg.Logger = safelog.Logger(d.cfg.Logger)
	if d.cfg.ErrorText == nil {
		d.cfg.ErrorText = deadletter.Text
	}
	if d.cfg.PerSecond == 0 {
		d.cfg.PerSecond = defaultDeadPerSecond
	}
	return func(next consumer.Handler) consumer.Handler {
		return &deadLetter[Tx]{
			next: next, store: d.store, dead: d.dead, cfg: d.cfg, invalid: d.invalid,
			turns: newTurns(d.cfg.PerSecond, deadBurst),
		}
	}
}

type deadLetter[Tx any] struct {
	next    consumer.Handler
	store   dedupstore.Store[Tx]
	dead    deadletter.Writer[Tx]
	cfg     DeadLetterConfig
	invalid error // what is wrong with the configuration

	declared
	inside
	turns *turns
	storm seldom // says that they come too fast
	stuck seldom // says that they cannot be written
}

func (d *deadLetter[Tx]) validate() error {
	var errs []error
	if nils.Is(d.store) {
		errs = append(errs, errors.New("middleware.DeadLetter: the store is nil: pass the one that Dedup has"))
	}
	if nils.Is(d.dead) {
		errs = append(errs, errors.New("middleware.DeadLetter: the table is nil: pass pgxdeadletter.New(pool, nil), for example"))
	}
	for _, kind := range d.cfg.Except {
		if !slices.Contains(deadletter.Kinds(), kind) {
			errs = append(errs, fmt.Errorf("middleware.DeadLetter: DeadLetterConfig.Except has %q, which is no kind of failure: use the constants of package deadletter", kind))
		}
	}
	return errors.Join(errs...)
}

// Unwrap implements consumer.Wrapper.
func (d *deadLetter[Tx]) Unwrap() consumer.Handler { return d.next }

// Link implements consumer.Linker.
func (d *deadLetter[Tx]) Link() consumer.Link { return consumer.LinkDeadLetter }

// Validate implements consumer.Validator.
func (d *deadLetter[Tx]) Validate([]consumer.Handler) error {
	d.declare()
	return d.invalid
}

// Check implements consumer.Checker.
func (d *deadLetter[Tx]) Check(ctx context.Context) error {
	if d.invalid != nil {
		return d.invalid
	}
	if err := errors.Join(checkIfAble(ctx, d.store), checkIfAble(ctx, d.dead)); err != nil {
		return err
	}
	if err := d.checkSameTable(ctx, d.store); err != nil {
		return err
	}
	return checkInTx(ctx, d.store, d.dead)
}

// Handle implements consumer.Handler.
func (d *deadLetter[Tx]) Handle(ctx context.Context, msg *consumer.Message) error {
	if d.invalid != nil {
		return d.invalid // not permanent: nothing is wrong with the message
	}
	d.reached(ctx, msg, consumer.LinkDeadLetter)
	return call(ctx, msg, d.next, func(err error) error { return d.decide(ctx, msg, err) })
}

// decide says what follows on an attempt that ended with err.
func (d *deadLetter[Tx]) decide(ctx context.Context, msg *consumer.Message, err error) error {
	if err == nil || interrupted(ctx) || !consumer.IsPermanent(err) && !consumer.IsGaveUp(err) {
		return err
	}
	kind := kindOf(err)
	if slices.Contains(d.cfg.Except, kind) {
		return err
	}
	return d.bury(ctx, msg, kind, err)
}

// bury writes the dead letter, or has the message come again for it.
func (d *deadLetter[Tx]) bury(ctx context.Context, msg *consumer.Message, kind deadletter.Kind, err error) error {
	w := waitingBefore(msg.LastError)
	w.error = err
	now := time.Now()
	if w.turn.IsZero() {
		w.turn = d.turns.next(now)
	}
	if delay := w.turn.Sub(now); delay > 0 {
		if n, ok := d.storm.now(now); ok {
			d.cfg.Logger.WarnContext(ctx, "einmal: dead letters come faster than DeadLetterConfig.PerSecond allows, messages wait for their turn",
				slog.String(string(names.Topic), msg.Topic), slog.String(string(names.ErrorType), errtype.Of(err)),
				slog.Int("waited", n))
		}
		return consumer.RetryAfter(delay, w)
	}
	if w.own = d.write(ctx, msg, kind, err); w.own == nil {
		return nil
	}
	if interrupted(ctx) {
		return err // it comes again
	}
	w.failures++
	if n, ok := d.stuck.now(now); ok {
		d.cfg.Logger.ErrorContext(ctx, "einmal: a dead letter cannot be written, the message stays",
			slog.String(string(names.Topic), msg.Topic), slog.String(string(names.Partition), strconv.Itoa(int(msg.Partition))),
			slog.Int64(string(names.Offset), msg.Offset),
			slog.String("error", cut(d.text(w.own, msg), maxErrorText)), slog.Int("attempts", n))
	}
	ceiling := deadRetry.ceiling(w.failures)
	return consumer.RetryAfter(ceiling/2+jitter(ceiling/2), w)
}

// write makes one attempt to write the dead letter.
func (d *deadLetter[Tx]) write(ctx context.Context, msg *consumer.Message, kind deadletter.Kind, err error) error {
	if ctx.Err() != nil { // the attempt has overrun Topic.ProcessingLimit; this is not a part of it
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, deadWriteTimeout)
	defer cancel()
	var failed error
	for _, event := range eventsOf(msg, err) {
		key := dedupstore.Key{Consumer: msg.Consumer, Event: event}
		ran, own := d.once(ctx, msg, key, d.record(ctx, msg, key, kind, err))
		switch {
		case own == nil && ran:
			msg.Result.Dead, msg.Result.DeadErr, msg.Result.Duplicate = true, err, false
			return nil
		case own == nil:
			msg.Result.Duplicate, msg.Result.HandlerStart, msg.Result.HandlerEnd = true, time.Time{}, time.Time{}
			return nil
		}
		failed = own
		if dedupstore.ClassOf(own) != dedupstore.Permanent {
			return failed // the next key would not do better
		}
	}
	return unrecordable(msg, failed)
}

// unrecordable says what to do about a message for which the table takes no key at all.
func unrecordable(msg *consumer.Message, err error) error {
	at := "it has no time, so that no partition is the one for it"
	if !msg.Timestamp.IsZero() {
		at = "its time is " + msg.Timestamp.UTC().Format(time.DateTime)
	}
	return dedupstore.WithClass(dedupstore.Misconfigured,
		fmt.Errorf("the table takes no key of the message, neither an id of its event nor its place as text or as a UUIDv7, and %s: "+
			"create the partition of that time; or note the message, and set the group's offset behind it: %w", at, err))
}

// eventsOf are the second halves of the keys to try, in their order: a store may refuse the first.
func eventsOf(msg *consumer.Message, err error) []string {
	events := []string{deadletter.Place(msg)}
	if id, ok := deadletter.PlaceUUID(msg); ok {
		events = append(events, id)
	}
	if !hasID(msg) || errors.Is(err, dedupstore.ErrTxEnded) {
		return events
	}
	return append([]string{msg.EventID}, events...)
}

// hasID reports whether the message has an id for its event, of which it is not known yet whether the store takes it.
func hasID(msg *consumer.Message) bool {
	return msg.EventIDErr == nil && msg.EventID != "" && !deadletter.Reserved(msg.EventID)
}

// once runs the transaction, and keeps the times of its steps.
func (d *deadLetter[Tx]) once(ctx context.Context, msg *consumer.Message, key dedupstore.Key,
	rec *deadletter.Record) (ran bool, err error) {
	return timedOnce(ctx, d.store, msg, key, func(ctx context.Context, tx Tx) error { return d.dead.Write(ctx, tx, rec) })
}

func (d *deadLetter[Tx]) record(ctx context.Context, msg *consumer.Message, key dedupstore.Key, kind deadletter.Kind,
	err error) *deadletter.Record {
	rec := deadletter.NewRecord(msg, key)
	if d.cfg.WithoutMessage {
		rec.Key, rec.Value, rec.Headers, rec.LeftOut = nil, nil, nil, true
	}
	rec.Kind, rec.ErrorType = kind, errtype.Of(err)
	rec.Error = plain(d.text(err, msg), deadletter.MaxText)
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		rec.TraceID = sc.TraceID().String()
	}
	return rec
}

func (d *deadLetter[Tx]) text(err error, msg *consumer.Message) string {
	return errorText(func() string { return d.cfg.ErrorText(err, msg) }, err)
}
