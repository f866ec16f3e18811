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

	"github.com/einmal-go/einmal/internal/safelog"
)

// Defaults of HandlerConfig.
const (
	// DefaultKeep is how long clients that gave up come again: those of payment providers are given a day, too.
	DefaultKeep = 24 * time.Hour
	// DefaultMaxBody is more than APIs take that speak JSON.
	DefaultMaxBody = 1 << 20
	// DefaultMaxAnswer keeps a row of the table small beside what it stands for.
	DefaultMaxAnswer = 1 << 20
	// DefaultBeginTimeout is longer than a pool that is in use makes a request wait, and shorter than clients wait.
	DefaultBeginTimeout = 5 * time.Second
	// DefaultRetryAfter is the least that the header field can say.
	DefaultRetryAfter = time.Second
)

// HandlerConfig is how a Handler answers. The zero value of every optional field is its documented default.
type HandlerConfig struct {
	// Principal names whose keys a request's are: the tenant, the account or the user whom the request has been
	// authenticated as. The keys of two principals have nothing to do with each other. It must be a name that stays the
	// same when credentials are renewed, and no secret, since it stands in the table; of a name longer than 200 bytes the
	// hash does. A request without a principal, with an error or "", is answered with 403. Required, unless SingleTenant
	// is set.
	Principal func(r *http.Request) (string, error)

	// SingleTenant says that all requests are of one principal. Where they are not, one client can read the answers to
	// another one by its key.
	SingleTenant bool

	// Authorize is asked about each request, repetitions too, before its key is looked up: a stored answer is replayed by
	// the key alone, also after the handler would refuse whoever asks, because rights were withdrawn for example. An error
	// is answered with 403, and stays here. r has the whole body. It must be safe for concurrent use. Default: none,
	// whoever the Principal is sees what that principal was answered.
	Authorize func(r *http.Request) error

	// MaxKeys is how many answers are kept for one principal, about: requests at the same time may exceed it. One more is
	// answered with 429, until some have expired. Each first request counts them, which reads as many rows. The store must
	// count (KeyCounter), as all of einmal's do. Default: 0, no limit.
	MaxKeys int

	// Fingerprint returns what stands for the body where requests with one key are compared, beside method, path and
	// query. It must tell apart what the handler answers differently. body is that of the request; r must not be modified.
	// A change of it makes other requests of those whose keys are kept. Default: media type, encoding and body, byte by
	// byte. See ContentFingerprint.
	Fingerprint func(r *http.Request, body []byte) []byte

	// BeginTimeout is how long a request may wait for its transaction, and for its key to be looked up: for a connection
	// of a pool that is used up, or of a database that does not answer. Then it is answered with 503 and Retry-After.
	// Default: DefaultBeginTimeout.
	BeginTimeout time.Duration

	// FinishWithin lets a handler that has begun finish although its client has gone, within this time from its begin: a
	// client whose time-out is shorter than the handler finds the answer when it comes again, instead of starting it anew
	// each time. ctx ends then, and all is rolled back. Default: 0, ctx ends when the client goes.
	FinishWithin time.Duration

	// KeyOptional runs requests without a key once each time that they come. Default: false, they are answered with 400.
	KeyOptional bool

	// Keep is how long answers are kept. A request that is repeated later takes effect again: it must be longer than
	// clients repeat theirs. Publish it, as the draft asks. Default: DefaultKeep.
	Keep time.Duration

	// MaxBody is how many bytes the body of a request may have. It is read before the transaction begins. Default:
	// DefaultMaxBody.
	MaxBody int64

	// MaxAnswer is how many bytes an answer may have, headers and body. A larger one is the handler's failure. Default:
	// DefaultMaxAnswer.
	MaxAnswer int

	// ReplayHeaders are stored and replayed beside those which are by default: Accept-Ranges, Cache-Control,
	// Content-Digest, Content-Disposition, Content-Encoding, Content-Language, Content-Location, Content-Range,
	// Content-Type, ETag, Last-Modified, Link, Location, Repr-Digest and Vary. Of all of them only what the handler has
	// written: what middlewares outside set, they set again. Default: none.
	ReplayHeaders []string

	// RetryAfter is what Retry-After says with 409, 429 and 503, in full seconds. Default: DefaultRetryAfter.
	RetryAfter time.Duration

	// OnAnswer is called with what became of each request, after its answer was written, on the request's goroutine: for
	// metrics, see idempotencymetrics.OnAnswer. r has been read; its Pattern is the route. It must return soon, and a
	// panic is the request's. Default: none.
	OnAnswer func(r *http.Request, outcome Outcome)

	// Logger is told of handlers that failed and of a database that is away, with the method and the route of the request.
	// Of the error's text at most 1,024 bytes are logged, without what looks like a secret and without what it repeats of
	// the request's body. Default: slog.Default().
	Logger *slog.Logger
}

func (c HandlerConfig) withDefaults() HandlerConfig {
	c.Keep = cmp.Or(c.Keep, DefaultKeep)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, DefaultMaxAnswer)
	c.BeginTimeout = cmp.Or(c.BeginTimeout, DefaultBeginTimeout)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.Logger = safelog.Logger(c.Logger)
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
	}{{"Keep", c.Keep}, {"BeginTimeout", c.BeginTimeout}, {"FinishWithin", c.FinishWithin}, {"RetryAfter", c.RetryAfter}} {
		if d.is < 0 || d.is > maxTime {
			add("%s is %v: make it positive and at most %v, or 0 for the default", d.field, d.is, maxTime)
		}
	}
	if c.MaxKeys < 0 {
		add("MaxKeys is %d: make it positive, or 0 for no limit", c.MaxKeys)
	}
	if c.MaxBody < 0 {
		add("MaxBody is %d: make it positive, or 0 for the default", c.MaxBody)
	}
	if c.MaxAnswer < 0 || c.MaxAnswer > 1<<29 {
		add("MaxAnswer is %d: make it positive and at most %d, which is what a row can hold, or 0 for the default",
			c.MaxAnswer, 1<<29)
	}
	for _, name := range c.ReplayHeaders {
		if why := notReplayable(name); why != "" {
			add("ReplayHeaders has %s", why)
		}
	}
	return errors.Join(errs...)
}

// notReplayable says what is wrong with the name of a field to replay, or "".
func notReplayable(name string) string {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
	case name == "" || strings.ContainsAny(name, " \t\r\n:"):
		return fmt.Sprintf("%q, which is no name of a header field", name)
	case slices.Contains(neverReplayed, canonical):
		return canonical + ", which is of one connection or one moment, or a credential: leave it out"
	}
	return ""
}
