package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/nils"
	"github.com/einmal-go/einmal/internal/safelog"
)

// HandOnConfig is what can be chosen about HandOn. Nil means all defaults.
type HandOnConfig struct {
	// ErrorText makes the text of an error for the log. Defaults to deadletter.Text, which masks what looks like a secret
	// or like a part of the message.
	ErrorText func(err error, msg *consumer.Message) string

	// Logger is told, once a minute at most, that messages cannot be handed on. Defaults to slog.Default().
	Logger *slog.Logger
}

// HandOn returns a middleware that hands a message on whose attempts have all failed (*consumer.GaveUp, which Retry
// inside it returns): it calls write in one transaction of store with a record, and then the message is done here.
// write makes sure that the message comes again, from elsewhere: package forward has one that sends it to a retry
// topic, and RetryTopics, which puts all of it together.
//
// The record's key is msg's with stage in it, see dedupstore.Key.HandOn: not the event's own, which is for its effect.
// If it was recorded before, by an earlier delivery, write is not called, and msg.Result.Duplicate is set.
// msg.Result.HandedOn is set in both cases.
//
// All other errors pass, consumer.Permanent too: no later attempt would help. So does a GaveUp whose message cannot be
// handed on: it has no id, the key is refused, or write says consumer.Permanent. As long as it is not known that the
// message was handed on, because the database is away for example, the message stays and is tried again, after 1 s,
// then twice as long each time up to 1 min, by a consumer.RetryAfter that OnFailure does not see.
//
// It stands inside DeadLetter, which acts on what passes, and outside CrashLoop and Retry.
func HandOn[Tx any](store dedupstore.Store[Tx], stage string,
	write func(ctx context.Context, tx Tx, msg *consumer.Message) error, cfg *HandOnConfig) consumer.Middleware {
	h := handOn[Tx]{store: store, stage: stage, write: write}
	if cfg != nil {
		h.cfg = *cfg
	}
	h.cfg.Logger = safelog.Logger(h.cfg.Logger)
	if h.cfg.ErrorText == nil {
		h.cfg.ErrorText = deadletter.Text
	}
	h.invalid = h.validate()
	return func(next consumer.Handler) consumer.Handler {
		return &handOn[Tx]{next: next, store: h.store, stage: h.stage, write: h.write, cfg: h.cfg, invalid: h.invalid}
	}
}

type handOn[Tx any] struct {
	next    consumer.Handler
	store   dedupstore.Store[Tx]
	stage   string
	write   func(ctx context.Context, tx Tx, msg *consumer.Message) error
	cfg     HandOnConfig
	invalid error // what is wrong with the arguments

	stuck  seldom // says that messages cannot be handed on for now
	passed seldom // says that some never can
}

func (h *handOn[Tx]) validate() error {
	var errs []error
	if nils.Is(h.store) {
		errs = append(errs, errors.New("middleware.HandOn: the store is nil: pass the one that Dedup has"))
	}
	if h.write == nil {
		errs = append(errs, errors.New("middleware.HandOn: write is nil: pass a function that has the message come again"))
	}
	if h.stage == "" {
		errs = append(errs, errors.New("middleware.HandOn: the stage has no name: give it one, it stands in the records"))
	}
	return errors.Join(errs...)
}

// Unwrap implements consumer.Wrapper.
func (h *handOn[Tx]) Unwrap() consumer.Handler { return h.next }

// Link implements consumer.Linker.
func (h *handOn[Tx]) Link() consumer.Link { return consumer.LinkHandOn }

// Validate implements consumer.Validator.
func (h *handOn[Tx]) Validate([]consumer.Handler) error { return h.invalid }

// Check implements consumer.Checker.
func (h *handOn[Tx]) Check(ctx context.Context) error {
	if h.invalid != nil {
		return h.invalid
	}
	return checkIfAble(ctx, h.store)
}

// Handle implements consumer.Handler.
func (h *handOn[Tx]) Handle(ctx context.Context, msg *consumer.Message) error {
	if h.invalid != nil {
		return h.invalid // not permanent: nothing is wrong with the message
	}
	return call(ctx, msg, h.next, func(err error) error { return h.decide(ctx, msg, err) })
}

// decide says what follows on an attempt that ended with err.
func (h *handOn[Tx]) decide(ctx context.Context, msg *consumer.Message, err error) error {
	if !consumer.IsGaveUp(err) || interrupted(ctx) || !hasID(msg) {
		return err
	}
	ran, own := h.once(ctx, msg)
	switch {
	case own == nil:
		msg.Result.HandedOn, msg.Result.Duplicate = err, !ran
		return nil
	case interrupted(ctx):
		return err // it comes again
	case consumer.IsPermanent(own), dedupstore.ClassOf(own) == dedupstore.Permanent:
		h.log(ctx, &h.passed, slog.LevelWarn, "einmal: a message cannot be handed on, it is given up here", msg, own)
		return err
	}
	h.log(ctx, &h.stuck, slog.LevelError, "einmal: a message cannot be handed on for now, it stays", msg, own)
	stays := &staying{error: err, own: own, failures: stayedBefore(msg.LastError) + 1}
	ceiling := deadRetry.ceiling(stays.failures)
	return consumer.RetryAfter(ceiling/2+jitter(ceiling/2), stays)
}

// once makes one attempt.
func (h *handOn[Tx]) once(ctx context.Context, msg *consumer.Message) (ran bool, err error) {
	if ctx.Err() != nil { // the attempt has overrun Topic.ProcessingLimit; this is not a part of it
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, deadWriteTimeout)
	defer cancel()
	key := dedupstore.Key{Consumer: msg.Consumer, Event: msg.EventID}.HandOn(h.stage)
	return timedOnce(ctx, h.store, msg, key, func(ctx context.Context, tx Tx) error { return h.write(ctx, tx, msg) })
}

func (h *handOn[Tx]) log(ctx context.Context, often *seldom, level slog.Level, text string, msg *consumer.Message,
	err error) {
	if n, ok := often.now(time.Now()); ok {
		h.cfg.Logger.LogAttrs(ctx, level, text,
			slog.String(string(names.Topic), msg.Topic), slog.Int("partition", int(msg.Partition)),
			slog.Int64(string(names.Offset), msg.Offset),
			slog.String("error", cut(errorText(func() string { return h.cfg.ErrorText(err, msg) }, err), maxErrorText)),
			slog.Int("messages", n))
	}
}

// staying is the error of a message that is to be handed on. It is found again in the next attempt's LastError.
type staying struct {
	error          // for which the message is handed on
	own      error // of the last attempt to do so
	failures int   // of these
}

func (s *staying) Error() string {
	return fmt.Sprintf("the message was not handed on: %v: %v", s.own, s.error)
}
func (s *staying) Unwrap() []error { return []error{s.own, s.error} }

// stayedBefore is how often the message could not be handed on before.
func stayedBefore(last error) int {
	if before, ok := errors.AsType[*staying](last); ok {
		return before.failures
	}
	return 0
}
