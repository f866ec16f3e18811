package idempotency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// call is one logical call: its attempts share the key and the bytes.
type call struct {
	*Transport
	req      *http.Request // the caller's: not modified
	body     *body
	value    string // of the field
	began    time.Time
	attempts int
	sent     bool // an attempt has got a connection: something of it may have arrived
}

// newCall begins a call, or goes on with one that a redirect has led to req.
func newCall(t *Transport, req *http.Request, body *body, value string) *call {
	c := &call{Transport: t, req: req, body: body, value: value, began: time.Now()}
	if first := before(req); first != nil {
		c.began, c.attempts, c.sent = first.began, first.attempts-1, true
	}
	return c
}

// run makes attempts until one is definite or there may be no other.
func (c *call) run() (*http.Response, error) {
	for {
		c.attempts++
		a := c.attempt()
		c.sent = c.sent || a.sent()
		if !c.again(a) {
			return c.end(a)
		}
		wait := c.cfg.pause(c.attempts, a.res, draw())
		if !c.fits(wait) {
			return c.end(a)
		}
		a.drain()
		c.tell(a, wait)
		if err := sleep(c.req.Context(), wait); err != nil {
			return nil, &GaveUp{Attempts: c.attempts, Err: c.unsent(fmt.Errorf("%w, while waiting after %s", err, a))}
		}
	}
}

// again reports whether the attempt leaves open what became of the call, and there may be another one.
func (c *call) again(a *attempt) bool {
	switch {
	case c.attempts >= c.cfg.Attempts || c.req.Context().Err() != nil:
		return false
	case a.err != nil:
		return !hopeless(a.err)
	default:
		return c.cfg.Again(a.res)
	}
}

// fits reports whether after a pause there is time for another attempt.
func (c *call) fits(wait time.Duration) bool {
	next := time.Now().Add(wait)
	deadline, ok := c.req.Context().Deadline()
	return next.Before(c.began.Add(c.cfg.Budget)) && (!ok || next.Before(deadline))
}

// end hands over the last attempt.
func (c *call) end(a *attempt) (*http.Response, error) {
	res, err := a.handOver(c.req)
	if err == nil {
		return c.follow(res)
	}
	if err = c.unsent(err); c.attempts > 1 {
		err = &GaveUp{Attempts: c.attempts, Err: err}
	}
	return nil, err
}

// unsent says of an error that no attempt was sent, if that is so.
func (c *call) unsent(err error) error {
	if c.sent {
		return err
	}
	return &notSent{err}
}

func (c *call) tell(a *attempt, wait time.Duration) {
	if c.cfg.OnRetry != nil {
		c.cfg.OnRetry(c.req.Context(), Retry{Attempt: c.attempts, Status: a.status(), Err: a.err, Wait: wait})
	}
}

// request is the caller's for one attempt. Nothing in it that an attempt may change is shared.
func (c *call) request(ctx context.Context, body io.ReadCloser) *http.Request {
	r := c.req.WithContext(ctx)
	r.Header = c.req.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if !safeMethod(r.Method) {
		r.Header[c.cfg.Header] = []string{c.value}
	}
	r.Body, r.GetBody, r.ContentLength = body, c.body.again, c.body.length
	return r
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// GaveUp is the error of a call that was repeated and still has no answer. It does not say that the call had no effect,
// unless it wraps ErrNotSent.
type GaveUp struct {
	Attempts int
	Err      error // of the last attempt, or of the context that ended between two
}

func (e *GaveUp) Error() string {
	effect := ", the call may have taken effect"
	if errors.Is(e.Err, ErrNotSent) {
		effect = "" // which Err says
	}
	return fmt.Sprintf("no answer after %d attempts%s: %v", e.Attempts, effect, e.Err)
}

// Unwrap returns Err.
func (e *GaveUp) Unwrap() error { return e.Err }

// Timeout reports whether the last attempt ended by a time-out, for url.Error.
func (e *GaveUp) Timeout() bool { return isTimeout(e.Err) }
