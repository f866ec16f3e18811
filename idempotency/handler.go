package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// TxHandler answers a request within a transaction. It writes to the database by tx, publishes by the outbox with tx,
// and answers by w, as an http.Handler does. What it returns and answers decides:
//
//	nil and 2xx, 3xx, or nothing          committed: its writes and the answer, which repetitions of the request get
//	nil and 4xx                           the answer is kept, its writes are rolled back
//	nil and 401, 403, 408, 425, 429, 5xx  the answer is sent, nothing is kept: a repetition runs the handler again
//	ErrNotStored and any answer           likewise
//	another error                         nothing is kept; answered with 500, with 503 if the database is to blame, or with the 5xx that it wrote
//	a panic, or ctx is done               nothing is kept
//
// ctx ends when the client goes away, unless HandlerConfig.FinishWithin lets it finish. w keeps the answer in memory
// until the transaction is committed: it cannot be flushed, hijacked or unwrapped, informational answers (1xx) and
// trailers are dropped. Its header begins with what middlewares outside have set. r has a body that is in memory, too.
// Calls of other services that the transaction cannot take back belong behind the outbox, or carry a key that is
// derived from this one's.
type TxHandler[Tx any] func(ctx context.Context, tx Tx, w http.ResponseWriter, r *http.Request) error

// ErrNotStored is returned by a TxHandler whose answer must not be kept, although its status would be: what it wrote is
// rolled back, the answer is sent, and the request may come again with the same key. For a refusal that another moment
// may lift, for example.
var ErrNotStored = errors.New("the answer is sent, and not stored")

// Handler is an http.Handler that runs a TxHandler once for each Idempotency-Key, and answers repetitions with what the
// first request was answered. It is safe for concurrent use.
type Handler[Tx any] struct {
	store Store[Tx]
	fn    TxHandler[Tx]
	cfg   HandlerConfig
}

// NewHandler returns a Handler, or all that is wrong with its configuration. It does no input or output; Check does.
//
// Requests with safe methods (GET, HEAD, OPTIONS, TRACE) need no key, and one that they have is ignored: they run each
// time. All others need one.
func NewHandler[Tx any](store Store[Tx], fn TxHandler[Tx], cfg HandlerConfig) (*Handler[Tx], error) {
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("idempotency: NewHandler: the store is nil: make one, with pgxidempotency.New for example"))
	}
	if fn == nil {
		errs = append(errs, errors.New("idempotency: NewHandler: the function is nil"))
	}
	if _, counts := store.(KeyCounter); cfg.MaxKeys > 0 && store != nil && !counts {
		errs = append(errs, errors.New("idempotency: HandlerConfig.MaxKeys is set, and the store does not count keys (KeyCounter): leave it 0"))
	}
	if err := errors.Join(append(errs, cfg.validate())...); err != nil {
		return nil, err
	}
	return &Handler[Tx]{store, fn, cfg.withDefaults()}, nil
}

// Check reports what would make every request fail, a missing table for example, with what to run. Call it at start.
func (h *Handler[Tx]) Check(ctx context.Context) error {
	if checker, ok := h.store.(dedupstore.Checker); ok {
		return checker.Check(ctx)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (h *Handler[Tx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	outcome := OutcomeFailed // that of a panic
	if h.cfg.OnAnswer != nil {
		defer func() { h.cfg.OnAnswer(r, outcome) }()
	}
	outcome = h.serve(w, r)
}

func (h *Handler[Tx]) serve(w http.ResponseWriter, r *http.Request) Outcome {
	key, refused := h.key(r)
	var scope string
	if refused == nil {
		scope, refused = h.scope(r)
	}
	var body []byte
	if refused == nil {
		body, refused = h.body(w, r)
	}
	if refused == nil {
		refused = h.allowed(r, body)
	}
	if refused != nil {
		refused.write(w)
		return refused.outcome()
	}
	var answer Answer
	var replayed bool
	var err error
	if key == "" {
		answer, err = h.plain(w, r, body)
	} else {
		req := Request{Scope: scope, Key: key, Fingerprint: h.fingerprint(r, body), Keep: h.cfg.Keep, MaxKeys: h.cfg.MaxKeys}
		answer, replayed, err = h.once(w, r, req, body)
	}
	outcome := h.answer(w, r, body, &answer, replayed, err)
	if key == "" && (outcome == OutcomeFirst || outcome == OutcomeNotStored) {
		return OutcomeWithoutKey
	}
	return outcome
}

// key is "" for a request that needs none.
func (h *Handler[Tx]) key(r *http.Request) (string, *problem) {
	if safeMethod(r.Method) {
		return "", nil
	}
	key, err := keyOf(r.Header)
	switch {
	case err == nil:
		return key, nil
	case !errors.Is(err, errMissingKey):
		return "", &problem{Type: ProblemInvalidKey, Title: "Idempotency-Key is invalid", Status: http.StatusBadRequest,
			Detail: err.Error()}
	case h.cfg.KeyOptional:
		return "", nil
	}
	return "", &problem{
		Type: ProblemMissingKey, Title: "Idempotency-Key is missing", Status: http.StatusBadRequest,
		Detail: "this operation needs the header field Idempotency-Key: a quoted text of 1 to 255 characters that is unique to the request, a UUID for example, and the same when it is repeated",
	}
}

// scope is the principal, or the hash of one that is too long, or that could be taken for a hash.
func (h *Handler[Tx]) scope(r *http.Request) (string, *problem) {
	if h.cfg.SingleTenant {
		return "", nil
	}
	const longest, hashed = 200, "sha256:"
	switch name, err := h.cfg.Principal(r); {
	case err != nil || name == "":
		return "", &problem{
			Type: ProblemNoPrincipal, Title: "The request has no principal", Status: http.StatusForbidden,
			Detail: "an Idempotency-Key belongs to whoever sent it, and this request does not say who that is",
		}
	case len(name) > longest || !plain(name) || strings.HasPrefix(name, hashed):
		sum := sha256.Sum256([]byte(name))
		return hashed + hex.EncodeToString(sum[:]), nil
	default:
		return name, nil
	}
}

// allowed asks the service whether it answers the request at all.
func (h *Handler[Tx]) allowed(r *http.Request, body []byte) *problem {
	if h.cfg.Authorize == nil {
		return nil
	}
	if err := h.cfg.Authorize(withBody(r.WithContext(r.Context()), body)); err == nil { // which may read the body
		return nil
	}
	return &problem{
		Type: ProblemNotAllowed, Title: "The request is not allowed", Status: http.StatusForbidden,
		Detail: "whoever sent the request may not make it, nor see what it was answered before",
	}
}

// fingerprint is fingerprintOf, or what the configuration makes of the body.
func (h *Handler[Tx]) fingerprint(r *http.Request, body []byte) [sha256.Size]byte {
	if h.cfg.Fingerprint == nil {
		return fingerprintOf(r, body)
	}
	return fingerprintWith(r, h.cfg.Fingerprint(withBody(r.WithContext(r.Context()), body), body))
}

// body reads all of it.
func (h *Handler[Tx]) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &problem{
			Type: ProblemTooLarge, Title: "The body is too large", Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("at most %d bytes are taken", h.cfg.MaxBody),
		}
	case err != nil:
		return nil, &problem{Type: ProblemUnreadable, Title: "The body cannot be read", Status: http.StatusBadRequest}
	case len(body) == 0 && r.ContentLength > 0:
		h.log(r, nil, "the body was read before: put idempotency.Handler outside of what reads it, since requests are told apart by it", nil)
		return nil, h.failed()
	}
	return body, nil
}

// once runs the request, or finds its answer. The first client gets all of the header, and the store what is for
// others.
func (h *Handler[Tx]) once(w http.ResponseWriter, r *http.Request, req Request, body []byte) (answer Answer,
	replayed bool, err error) {
	var all http.Header
	t := h.begin(r.Context())
	answer, replayed, err = h.store.Once(t.ctx, req, func(ctx context.Context, tx Tx) (Answer, error) {
		if err := t.begun(); err != nil {
			return Answer{}, err
		}
		answer, own, err := h.run(ctx, tx, w.Header(), r, body)
		all, answer.Header = answer.Header, stored(own, h.cfg.ReplayHeaders)
		return answer, err
	})
	if err == nil && !replayed {
		answer.Header = all
	}
	return answer, replayed, t.end(err)
}

// plain runs what has no key.
func (h *Handler[Tx]) plain(w http.ResponseWriter, r *http.Request, body []byte) (answer Answer, err error) {
	t := h.begin(r.Context())
	err = h.store.InTx(t.ctx, func(ctx context.Context, tx Tx) error {
		err := t.begun()
		if err != nil {
			return err
		}
		if answer, _, err = h.run(ctx, tx, w.Header(), r, body); err == nil && answer.DropWrites {
			return &unstored{answer, nil}
		}
		return err
	})
	return answer, t.end(err)
}

// unstored rolls back, and is answered with what the handler said.
type unstored struct {
	answer Answer
	err    error // the handler's, or nil
}

func (e *unstored) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("the handler answered %d", e.answer.Status)
}

func (e *unstored) Unwrap() error { return e.err }

// run calls the handler, which finds the header as what stands outside has left it. own is what it has written of the
// answer's.
func (h *Handler[Tx]) run(ctx context.Context, tx Tx, outer http.Header, r *http.Request, body []byte) (answer Answer,
	own http.Header, err error) {
	w := newRecorder(outer, h.cfg.MaxAnswer)
	err = h.fn(ctx, tx, w, withBody(r.WithContext(ctx), body))
	answer = w.answer()
	switch failed := err != nil && !errors.Is(err, ErrNotStored); {
	case w.err != nil:
		return Answer{}, nil, errors.Join(w.err, err)
	case failed && answer.Status < http.StatusInternalServerError:
		return Answer{}, nil, err
	case err != nil || !isStored(answer.Status):
		return Answer{}, nil, &unstored{answer, err}
	}
	answer.DropWrites = answer.Status >= http.StatusBadRequest
	return answer, w.own, nil
}

// withBody gives a body that was read to a copy of a request.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return r
}

// isStored reports whether a repetition would be answered likewise. These would not: they are about who asks and when,
// or the handler has failed.
func isStored(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly,
		http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError
}
