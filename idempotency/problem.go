package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// The types of the problems that a Handler answers with by itself, as application/problem+json (RFC 9457). They never
// change.
const (
	ProblemMissingKey   = problems + "missing-key"    // 400: the request has no Idempotency-Key
	ProblemInvalidKey   = problems + "invalid-key"    // 400: it is empty, too long, not ASCII, or there are two
	ProblemUnreadable   = problems + "unreadable"     // 400: the body ended before its end
	ProblemNoPrincipal  = problems + "no-principal"   // 403: nobody knows whose key it is
	ProblemNotAllowed   = problems + "not-allowed"    // 403: HandlerConfig.Authorize refuses it
	ProblemTooManyKeys  = problems + "too-many-keys"  // 429, Retry-After: HandlerConfig.MaxKeys answers are kept for the principal
	ProblemInProgress   = problems + "in-progress"    // 409, Retry-After: the first request with this key is being handled
	ProblemTooLarge     = problems + "too-large"      // 413: the body is over the limit
	ProblemOtherRequest = problems + "other-request"  // 422: the key was used for a request that differs
	ProblemFailed       = problems + "handler-failed" // 500: the handler failed, nothing has happened, and the key is free
	ProblemUnavailable  = problems + "unavailable"    // 503, Retry-After: the database is away, or it is unknown what it did; repeat with the same key
)

const problems = "https://github.com/einmal-go/einmal/blob/main/docs/http-rules.md#"

// problem is a body of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	retryAfter time.Duration // 0 for none
}

func (p problem) write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) //nolint:errchkjson // texts and a number
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}
