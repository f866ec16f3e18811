package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Defaults of HandlerConfig.
const (
	// DefaultKeep is how long clients that gave up come again: those of payment providers are given a day, too.
	DefaultKeep = 24 * time.Hour
	// DefaultMaxBody is more than APIs take that speak JSON.
	DefaultMaxBody = 1 << 20
	// DefaultMaxAnswer keeps a row of the table small beside what it stands for.
	DefaultMaxAnswer = 1 << 20
	// DefaultRetryAfter is the least that the header field can say.
	DefaultRetryAfter = time.Second
)

// HandlerConfig is how a Handler answers. The zero value of every optional field is its documented default.
type HandlerConfig struct {
	// Principal names whose keys a request's are: the tenant, the account or the user whom the request has been authenticated as.
	// The keys of two principals have nothing to do with each other. It must be a name that stays the same when credentials are
	// renewed, and no secret, since it stands in the table; of a name longer than 200 bytes the hash does. A request without a
	// principal, with an error or "", is answered with 403. Required, unless SingleTenant is set.
	Principal func(r *http.Request) (string, error)

	// SingleTenant says that all requests are of one principal. Where they are not, one client can read the answers to another one
	// by its key.
	SingleTenant bool

	// KeyOptional runs requests without a key once each time that they come. Default: false, they are answered with 400.
	KeyOptional bool

	// Keep is how long answers are kept. A request that is repeated later takes effect again: it must be longer than clients repeat
	// theirs. Publish it, as the draft asks. Default: DefaultKeep.
	Keep time.Duration

	// MaxBody is how many bytes the body of a request may have. It is read before the transaction begins. Default: DefaultMaxBody.
	MaxBody int64

	// MaxAnswer is how many bytes an answer may have, headers and body. A larger one is the handler's failure. Default: DefaultMaxAnswer.
	MaxAnswer int

	// ReplayHeaders are stored and replayed beside those which are by default: Cache-Control, Content-Disposition, Content-Encoding,
	// Content-Language, Content-Location, Content-Type, ETag, Last-Modified, Link, Location and Vary. Default: none.
	ReplayHeaders []string

	// RetryAfter is what Retry-After says with 409 and 503, in full seconds. Default: DefaultRetryAfter.
	RetryAfter time.Duration

	// OnAnswer is called with what became of each request, after its answer was written, on the request's goroutine: for metrics, see
	// idempotencymetrics.OnAnswer. r has been read; its Pattern is the route. It must return soon, and a panic is the request's. Default: none.
	OnAnswer func(r *http.Request, outcome Outcome)

	// Logger is told of handlers that failed and of a database that is away, with the method and the route of the request. The error is
	// logged as the handler returned it: what its text repeats of the request is there. Default: slog.Default().
	Logger *slog.Logger
}

func (c HandlerConfig) withDefaults() HandlerConfig {
	c.Keep = cmp.Or(c.Keep, DefaultKeep)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, DefaultMaxAnswer)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.ReplayHeaders = slices.Concat(replayedByDefault, c.ReplayHeaders)
	return c
}

// maxTime is ten years, so that sums of times cannot overflow.
const maxTime = 10 * 365 * 24 * time.Hour

// validate reports all that is wrong.
func (c HandlerConfig) validate() error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("idempotency: HandlerConfig."+format, args...))
	}
	switch {
	case c.Principal == nil && !c.SingleTenant:
		add("Principal is not set: say by it whose keys a request's are, or set SingleTenant if all requests are of one")
	case c.Principal != nil && c.SingleTenant:
		add("Principal and SingleTenant are both set: leave one of them out")
	}
	for _, d := range []struct {
		field string
		is    time.Duration
	}{{"Keep", c.Keep}, {"RetryAfter", c.RetryAfter}} {
		if d.is < 0 || d.is > maxTime {
			add("%s is %v: make it positive and at most %v, or 0 for the default", d.field, d.is, maxTime)
		}
	}
	if c.MaxBody < 0 {
		add("MaxBody is %d: make it positive, or 0 for the default", c.MaxBody)
	}
	if c.MaxAnswer < 0 || c.MaxAnswer > 1<<29 {
		add("MaxAnswer is %d: make it positive and at most %d, which is what a row can hold, or 0 for the default", c.MaxAnswer, 1<<29)
	}
	for _, name := range c.ReplayHeaders {
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case name == "" || strings.ContainsAny(name, " \t\r\n:"):
			add("ReplayHeaders has %q, which is no name of a header field", name)
		case slices.Contains(neverReplayed, canonical):
			add("ReplayHeaders has %s, which is of one connection or one moment, or a credential: leave it out", canonical)
		}
	}
	return errors.Join(errs...)
}
