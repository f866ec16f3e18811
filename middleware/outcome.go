package middleware

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/sqlstate"
)

// outcome is what became of one attempt, in the words that log lines and spans share.
type outcome string

const (
	outcomeSuccess     outcome = "success"
	outcomeDuplicate   outcome = "duplicate"   // the event was recorded before: the handler did not run
	outcomeDeadLetter  outcome = "dead_letter" // the message was written as a dead letter
	outcomeHandedOn    outcome = "handed_on"   // by HandOn, to a retry topic for example
	outcomeNotDue      outcome = "not_due"     // the message is parked until it is
	outcomeSkipped     outcome = "skipped"     // by Filter
	outcomeRetry       outcome = "retry"       // another attempt follows
	outcomeGaveUp      outcome = "gave_up"     // all attempts have failed: OnFailure applies
	outcomePermanent   outcome = "permanent"   // no attempt will help: OnFailure applies
	outcomeFailed      outcome = "failed"      // an error that asks for nothing: OnFailure applies
	outcomeInterrupted outcome = "interrupted" // by a drain; the message comes again
	outcomePanic       outcome = "panic"       // that nobody inside has made an error of; OnFailure applies
)

// isError reports whether the message has not taken effect and something is wrong.
func (o outcome) isError() bool {
	switch o {
	case outcomeSuccess, outcomeDuplicate, outcomeSkipped, outcomeNotDue, outcomeInterrupted:
		return false
	default:
		return true
	}
}

// outcomeOf names what became of an attempt that returned err.
func outcomeOf(ctx context.Context, msg *consumer.Message, err error) outcome {
	switch {
	case err == nil && msg.Result.Dead:
		return outcomeDeadLetter
	case err == nil && msg.Result.HandedOn != nil:
		return outcomeHandedOn
	case err == nil && msg.Result.Skipped:
		return outcomeSkipped
	case err == nil && msg.Result.Duplicate:
		return outcomeDuplicate
	case err == nil:
		return outcomeSuccess
	case consumer.IsPermanent(err):
		return outcomePermanent
	case consumer.IsGaveUp(err):
		return outcomeGaveUp
	case interrupted(ctx):
		return outcomeInterrupted
	}
	if _, early := consumer.Due(err); early {
		return outcomeNotDue
	}
	if _, delayed := consumer.Delay(err); delayed {
		return outcomeRetry
	}
	return outcomeFailed
}

// errorTypes are the names of known errors, the most telling first.
var errorTypes = []struct {
	err  error
	name string
}{
	{consumer.ErrNoEventID, "no_event_id"},
	{consumer.ErrTombstone, "tombstone"},
	{ErrTooOld, "too_old"},
	{dedupstore.ErrInvalidKey, "invalid_key"},
	{ErrCrashLoop, "crash_loop"},
	{dedupstore.ErrTxEnded, "transaction_ended"},
	{dedupstore.ErrLocked, "locked"},
	{dedupstore.ErrOutcomeUnknown, "outcome_unknown"},
	{ErrTimeout, "timeout"},
	{consumer.ErrProcessingLimit, "timeout"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
}

// errorType names the class of err, which is not nil, for the attribute error.type: one of few words, free of anything that
// stood in a message. It is "panic", a name of errorTypes, the SQLSTATE of a database's error, the class that the store gave it,
// or the Go type of the error inside all wrappers.
func errorType(err error) string {
	if _, ok := errors.AsType[*consumer.Panic](err); ok {
		return "panic"
	}
	if code := sqlstate.Of(err); len(code) == 5 {
		return code
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	if class := dedupstore.ClassOf(err); class != dedupstore.Unclassified {
		return class.String()
	}
	return cut(names.TypeOf(cause(err)), 128)
}

// cause unwraps err as long as its type says nothing: control errors, and types whose name is not exported, such as those of
// fmt.Errorf and errors.Join.
func cause(err error) error {
	for {
		inner := unwrap(err)
		if inner == nil || telling(err) {
			return err
		}
		err = inner
	}
}

func telling(err error) bool {
	if _, ok := err.(*consumer.GaveUp); ok { //nolint:errorlint // this very error
		return false
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	first, _ := utf8.DecodeRuneInString(t.Name())
	return unicode.IsUpper(first)
}

// unwrap returns what err wraps, the first of several.
func unwrap(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, inner := range many.Unwrap() {
			if inner != nil {
				return inner
			}
		}
		return nil
	}
	return errors.Unwrap(err)
}

// cut shortens s to limit bytes and makes it UTF-8: exporters refuse a whole batch for one bad string.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "?")
}
