package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The defaults of TransportConfig.
const (
	defaultHeader             = "Idempotency-Key"
	defaultCallAttempts       = 5
	defaultCallBudget         = 30 * time.Second
	defaultCallAttemptTimeout = 10 * time.Second
	defaultCallMinBackoff     = 200 * time.Millisecond
	defaultCallMaxBackoff     = 5 * time.Second
	defaultCallMaxBody        = 1 << 20
	defaultCallMaxAnswer      = 1 << 20
)

// TransportConfig is what can be chosen about a Transport. Nil means all defaults, and so does a field that is zero.
type TransportConfig struct {
	// Header is the name of the field that carries the key. Defaults to Idempotency-Key, the name in the IETF's draft;
	// some servers have one of their own, such as PayPal-Request-Id.
	Header string

	// Bare sends the key without quotes, as Stripe, Adyen and most servers that are older than the draft expect it: they
	// would take the quotes for a part of the key, or refuse them. By default the key is a string of RFC 8941, in quotes,
	// as the draft wants it.
	Bare bool

	// RequireKey refuses a request that is neither GET, HEAD, OPTIONS nor TRACE and has no key, with an error that wraps
	// ErrNoKey. By default such a request is sent once, and never again.
	RequireKey bool

	// Attempts is how often a call is sent at most. Defaults to 5.
	Attempts int

	// Budget is how long a call may take with all its attempts and pauses. Defaults to 30 s: half of the time for which
	// the stores of dedupstore leave a handler's transaction alone (IdleTimeout). The request's context, or
	// http.Client.Timeout, may end the call earlier.
	Budget time.Duration

	// AttemptTimeout is how long one attempt may take until its answer is there, the body included unless it is handed
	// over as it arrives (MaxAnswer). Defaults to 10 s: three attempts that hang fit into the budget.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff bound the pauses between attempts: before attempt n+1 it is drawn evenly from 0 to
	// MinBackoff·2ⁿ⁻¹, but at most MaxBackoff ("full jitter"). An answer's Retry-After comes on top. Default to 200 ms and
	// 5 s.
	MinBackoff, MaxBackoff time.Duration

	// MaxBody is how many bytes of a request's body are kept in memory to send them again, if the request has no GetBody;
	// a longer body is refused with an error before anything is sent. http.NewRequest sets GetBody for readers of bytes
	// and strings. Defaults to 1 MiB.
	MaxBody int64

	// MaxAnswer is how many bytes of an answer's body are read before the answer is handed over, so that a connection that
	// breaks within them costs another attempt and not the call. What is longer is handed over from there on as it
	// arrives. A negative number hands over all answers as they arrive. Defaults to 1 MiB.
	MaxAnswer int64

	// RedirectHosts are the hosts, as they stand in a URL, to which a call may be sent by a redirect that keeps method and
	// body (307 and 308), beside the one that was called: they get the key, the body, and what else stands in the request.
	// By default none: the call fails with a *Redirected. After any other redirect (301, 302, 303) it does so always,
	// because an http.Client would go on with a GET. No redirect is followed from https to http.
	RedirectHosts []string

	// Again says whether an answer asks for another attempt. It must not read the body. Defaults to the function Again.
	Again func(*http.Response) bool

	// OnRetry is told of every attempt that will be followed by another one, before the pause. It must be safe for
	// concurrent use.
	OnRetry func(context.Context, Retry)
}

// Retry is an attempt that will be followed by another one.
type Retry struct {
	Attempt int           // from 1
	Status  int           // of the answer; 0 without one
	Err     error         // nil with an answer
	Wait    time.Duration // until the next attempt
}

// Transport is an http.RoundTripper that gives each call its idempotency key and repeats it, with the same key and the
// same bytes, until the answer is definite or the budget is used up.
//
//	client := &http.Client{Transport: idempotency.NewTransport(nil, nil)}
//
// A call has a key if its context (WithKey) or its own header field has one. It is repeated after errors of the
// connection, time-outs, and answers that leave the outcome open, which the function Again tells. When attempts or time
// are used up, the last answer is returned as it is; without an answer, a *GaveUp. Neither says that the call had no
// effect: return an error from the handler, and the next delivery of the event calls with the same key. An error of a
// call of which nothing was sent wraps ErrNotSent.
//
// A redirect is not followed by a request that is another one: see Redirected.
//
// The key is sent with all methods but GET, HEAD, OPTIONS and TRACE. A request without a key goes to the base transport
// untouched, once. Set keys only for servers that honour them: to others a repetition is another call. net/http too
// repeats a request that carries the field, when a kept connection turns out to be closed.
//
// A Transport does not modify requests and is safe for concurrent use. What makes spans or logs per attempt belongs
// into its base, what makes them per call around it.
type Transport struct {
	base    http.RoundTripper
	cfg     TransportConfig
	invalid error
}

// NewTransport returns a Transport that sends by base, or by http.DefaultTransport if base is nil. Every call fails
// with what is wrong in cfg, if something is.
func NewTransport(base http.RoundTripper, cfg *TransportConfig) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	if cfg == nil {
		cfg = &TransportConfig{}
	}
	return &Transport{base: base, cfg: cfg.withDefaults(), invalid: cfg.validate()}
}

func (c *TransportConfig) validate() error {
	var errs []error
	negative := func(field string, is bool) {
		if is {
			errs = append(errs, fmt.Errorf("idempotency: TransportConfig.%s is negative: make it 0 for the default", field))
		}
	}
	negative("Attempts", c.Attempts < 0)
	negative("Budget", c.Budget < 0)
	negative("AttemptTimeout", c.AttemptTimeout < 0)
	negative("MinBackoff", c.MinBackoff < 0)
	negative("MaxBackoff", c.MaxBackoff < 0)
	negative("MaxBody", c.MaxBody < 0)
	return errors.Join(errs...)
}

func (c *TransportConfig) withDefaults() TransportConfig {
	d := *c
	d.Header = http.CanonicalHeaderKey(or(d.Header, defaultHeader))
	d.Attempts = or(d.Attempts, defaultCallAttempts)
	d.Budget = or(d.Budget, defaultCallBudget)
	d.AttemptTimeout = or(d.AttemptTimeout, defaultCallAttemptTimeout)
	d.MinBackoff = or(d.MinBackoff, defaultCallMinBackoff)
	d.MaxBackoff = or(d.MaxBackoff, defaultCallMaxBackoff)
	d.MaxBody = or(d.MaxBody, defaultCallMaxBody)
	d.MaxAnswer = or(d.MaxAnswer, defaultCallMaxAnswer)
	if d.Again == nil {
		d.Again = Again
	}
	return d
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	value, keyed, err := t.fieldValue(req)
	switch {
	case t.invalid != nil:
		err = t.invalid
	case err == nil && !keyed && t.cfg.RequireKey && !safeMethod(req.Method):
		err = fmt.Errorf("%w: TransportConfig.RequireKey wants one for %s: give it by WithKey", ErrNoKey, req.Method)
	}
	if err != nil {
		closeBody(req)
		return nil, &notSent{err}
	}
	if !keyed {
		return t.base.RoundTrip(req)
	}
	body, err := newBody(req, t.cfg.MaxBody)
	if err != nil {
		return nil, &notSent{err}
	}
	return newCall(t, req, body, value).run()
}

// CloseIdleConnections implements what http.Client.CloseIdleConnections looks for.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// safeMethod reports whether the method asks for no effect (RFC 9110, 9.2.1).
func safeMethod(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
