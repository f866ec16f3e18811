package middleware

import (
	"context"
	"strings"

	"github.com/einmal-go/einmal/consumer"
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

// cut shortens s to limit bytes and makes it UTF-8: exporters refuse a whole batch for one bad string.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "?")
}
