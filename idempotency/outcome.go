package idempotency

import (
	"net/http"
	"slices"
)

// Outcome is what became of a request, in a word that never changes.
type Outcome string

// The outcomes.
const (
	OutcomeFirst        Outcome = "first"         // the handler ran, and its answer is kept
	OutcomeReplayed     Outcome = "replayed"      // answered with what is kept
	OutcomeNotStored    Outcome = "not_stored"    // the handler ran and was rolled back, for what it answered is not kept: 401, 403, 408, 425, 429, ErrNotStored
	OutcomeWithoutKey   Outcome = "without_key"   // the handler ran, for a request that needs no key
	OutcomeInProgress   Outcome = "in_progress"   // 409: the first one is being handled
	OutcomeOtherRequest Outcome = "other_request" // 422: the key was used for a request that differs
	OutcomeRefused      Outcome = "refused"       // 400, 403, 413, 429: the key, the principal or the body is missing or wrong, or too many keys are kept; the handler did not run
	OutcomeFailed       Outcome = "failed"        // the handler failed, panicked or answered 5xx, and was rolled back
	OutcomeUnavailable  Outcome = "unavailable"   // 503: the database is away, or it is unknown what it did
	OutcomeInterrupted  Outcome = "interrupted"   // the request's context ended, because its client went away for example
)

var outcomes = []Outcome{
	OutcomeFirst, OutcomeReplayed, OutcomeNotStored, OutcomeWithoutKey, OutcomeInProgress, OutcomeOtherRequest,
	OutcomeRefused, OutcomeFailed,
	OutcomeUnavailable, OutcomeInterrupted,
}

// Outcomes returns all of them.
func Outcomes() []Outcome { return slices.Clone(outcomes) }

// outcome is that of a request that is refused.
func (p *problem) outcome() Outcome {
	if p.Status >= http.StatusInternalServerError {
		return OutcomeFailed
	}
	return OutcomeRefused
}

// outcome is that of a request whose handler has answered, and was rolled back.
func (e *unstored) outcome() Outcome {
	if e.answer.Status >= http.StatusInternalServerError {
		return OutcomeFailed
	}
	return OutcomeNotStored
}
