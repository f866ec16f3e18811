package idempotency

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Again reports whether the answer to a call with a key leaves open what became of it, so that it is worth repeating:
// 408 (request time-out), 409 (the first request is in progress), 425 (too early), 429 (too many requests), and 5xx but
// 501 and 505, which the same request meets each time. All others are definite, and so is one that says by
// ReplayedHeader that it is kept for the key: it will not change.
func Again(res *http.Response) bool {
	if res.Header.Get(ReplayedHeader) == "true" {
		return false
	}
	switch code := res.StatusCode; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	default:
		return code >= 500
	}
}

// RetryAfter returns the pause that an answer asks for by Retry-After, in seconds or as a date, and whether it asks for
// one. A handler whose call came to nothing hands it on: consumer.RetryAfter(min(d, time.Hour), err), for a service may
// ask for years, and what is ordered behind the message waits as long. A date that has passed is a pause of 0.
func RetryAfter(res *http.Response) (time.Duration, bool) {
	value := res.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date)), true
	}
	return 0, false
}

// pause is how long to wait after attempt n, which failed with an answer or without one; r is drawn from [0, 1).
func (c *TransportConfig) pause(n int, res *http.Response, r float64) time.Duration {
	limit := c.MaxBackoff
	if shift := n - 1; shift < 32 && c.MinBackoff < c.MaxBackoff>>shift {
		limit = c.MinBackoff << shift
	}
	wait := time.Duration(r * float64(limit))
	if res != nil {
		after, _ := RetryAfter(res)
		wait += min(after, farAway)
	}
	return wait
}

// farAway is longer than any call waits, and short enough to be added to.
const farAway = 365 * 24 * time.Hour

func draw() float64 { return rand.Float64() } //nolint:gosec // jitter
