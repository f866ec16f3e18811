package idempotency

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// ErrNotSent is wrapped by the errors of calls that have had no effect, because nothing of any attempt was sent: what
// was wrong with the request was seen before, or there was no connection for it (the address has no name server's
// entry, the port refuses, the TLS handshake fails). An error that does not wrap it says nothing about the effect. It
// is about one call: an earlier one with the same key may have been sent.
var ErrNotSent = errors.New("the call was not sent")

// notSent is an error that wraps ErrNotSent.
type notSent struct{ err error }

func (e *notSent) Error() string   { return ErrNotSent.Error() + ": " + e.err.Error() }
func (e *notSent) Unwrap() []error { return []error{ErrNotSent, e.err} }

// Timeout reports whether the attempt ended by a time-out, for url.Error.
func (e *notSent) Timeout() bool { return isTimeout(e.err) }

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// connTrace sees how far an attempt gets.
type connTrace struct{ asked, got atomic.Bool }

// in returns a context in which a base that tells what it does, as net/http's does, tells it to t.
func (t *connTrace) in(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.got.Store(true) },
	})
}

// maybeSent is false for an attempt that has asked for a connection and never got one. A base that tells nothing may
// have sent it.
func (t *connTrace) maybeSent() bool { return !t.asked.Load() || t.got.Load() }

// refusals are what net/http says of requests that it does not send. It has no types for them.
var refusals = []string{
	"unsupported protocol scheme", "http: no Host in request URL", "net/http: invalid header field",
	"net/http: invalid trailer field",
	"net/http: invalid method", "http: nil Request.URL", "http: nil Request.Header",
}

// refusedByClient reports whether net/http has not sent a request, and never will.
func refusedByClient(err error) bool {
	text := err.Error()
	for _, refusal := range refusals {
		if strings.HasPrefix(text, refusal) {
			return true
		}
	}
	return false
}

// hopeless reports whether an error will come again whatever is repeated.
func hopeless(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || noTLS || errors.Is(err, http.ErrSchemeMismatch) || refusedByClient(err)
}
