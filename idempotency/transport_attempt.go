package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// attempt is one request of a call and what became of it: an answer or an error. Until its answer is whole or handed
// over, it may take no longer than it was given.
type attempt struct {
	res    *http.Response
	err    error
	whole  bool // the answer is in memory
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	trace  connTrace
}

func (c *call) attempt() *attempt {
	limit := min(c.cfg.AttemptTimeout, c.cfg.Budget-time.Since(c.began))
	a := &attempt{}
	a.ctx, a.cancel = context.WithCancelCause(a.trace.in(c.req.Context()))
	a.timer = time.AfterFunc(limit, func() { a.cancel(timeoutError(limit)) })
	if err := a.send(c); err != nil {
		a.fail(err)
	}
	return a
}

// send leaves an answer or returns an error.
func (a *attempt) send(c *call) error {
	body, err := c.body.next()
	if err != nil {
		return fmt.Errorf("read the body of the request again: %w", err)
	}
	res, err := c.base.RoundTrip(c.request(a.ctx, body)) //nolint:bodyclose // by drain, read, or the caller
	switch {
	case err != nil:
		return err
	case res == nil:
		return errors.New("the base RoundTripper returned neither an answer nor an error")
	case res.Body == nil:
		res.Body = http.NoBody
	}
	a.res = res
	if limit := c.cfg.MaxAnswer; limit > 0 && res.StatusCode != http.StatusSwitchingProtocols {
		return a.read(limit)
	}
	return nil
}

// sent reports whether something of the attempt may have arrived.
func (a *attempt) sent() bool { return a.err == nil || !refusedByClient(a.err) && a.trace.maybeSent() }

// read takes the body into memory. Of one that is longer than limit, the rest is left where it is.
func (a *attempt) read(limit int64) error {
	from := a.res.Body
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		a.res.Body = readCloser{io.MultiReader(bytes.NewReader(data), from), from.Close}
		return nil
	}
	_ = from.Close()
	if err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	a.res.Body = io.NopCloser(bytes.NewReader(data))
	a.whole = true
	a.stop()
	return nil
}

// fail ends the attempt without an answer. It tells the attempt's own time-out from the end of the caller's context.
func (a *attempt) fail(err error) {
	if _, own := errors.AsType[timeoutError](context.Cause(a.ctx)); own {
		err = context.Cause(a.ctx)
	}
	a.res, a.err = nil, err
	a.stop()
}

func (a *attempt) stop() {
	a.timer.Stop()
	a.cancel(nil)
}

// handOver gives the answer to the caller, whose context alone bounds it from now on. An attempt whose time is over at
// that moment has failed.
func (a *attempt) handOver(req *http.Request) (*http.Response, error) {
	if a.err == nil && !a.whole {
		a.release()
	}
	if a.err != nil {
		return nil, a.err
	}
	a.res.Request = req
	return a.res, nil
}

// release lets the body end the attempt's context when it is closed.
func (a *attempt) release() {
	from := a.res.Body
	if !a.timer.Stop() {
		_ = from.Close()
		a.fail(context.Cause(a.ctx))
		return
	}
	if a.res.StatusCode != http.StatusSwitchingProtocols { // whose body is a connection
		a.res.Body = readCloser{from, func() error { defer a.cancel(nil); return from.Close() }}
	}
}

// drain reads what is left of an answer that is not handed over, so that its connection can be used again.
func (a *attempt) drain() {
	if a.res != nil {
		_, _ = io.CopyN(io.Discard, a.res.Body, drainLimit)
		_ = a.res.Body.Close()
	}
	a.stop()
}

// drainLimit is what costs less to read than a new connection costs to make.
const drainLimit = 64 << 10

func (a *attempt) status() int {
	if a.res == nil {
		return 0
	}
	return a.res.StatusCode
}

// String says what became of the attempt.
func (a *attempt) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("the answer %d %s", a.status(), http.StatusText(a.status()))
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r readCloser) Close() error { return r.close() }

// timeoutError is the end of an attempt's time.
type timeoutError time.Duration

func (e timeoutError) Error() string {
	return fmt.Sprintf("no whole answer within %v: see TransportConfig.AttemptTimeout and Budget",
		time.Duration(e).Round(time.Millisecond))
}
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
