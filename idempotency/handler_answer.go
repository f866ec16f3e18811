package idempotency

import (
	"errors"
	"net/http"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/redact"
)

// answer is called after the transaction has ended.
func (h *Handler[Tx]) answer(w http.ResponseWriter, r *http.Request, body []byte, a *Answer, replayed bool,
	err error) Outcome {
	if err == nil {
		send(w, r, a, replayed)
		if replayed {
			return OutcomeReplayed
		}
		return OutcomeFirst
	}
	var said *unstored
	switch class := dedupstore.ClassOf(err); {
	case errors.Is(err, ErrInProgress):
		problem{
			Type: ProblemInProgress, Title: "The request is being handled", Status: http.StatusConflict,
			retryAfter: h.cfg.RetryAfter,
			Detail:     "a request with this Idempotency-Key is being handled: repeat it later, with the same key",
		}.write(w)
		return OutcomeInProgress
	case errors.Is(err, ErrTooManyKeys):
		problem{
			Type: ProblemTooManyKeys, Title: "Too many keys", Status: http.StatusTooManyRequests, retryAfter: h.cfg.RetryAfter,
			Detail: "as many answers are kept for you as may be: repeat the request later, with the same Idempotency-Key",
		}.write(w)
		return OutcomeRefused
	case errors.Is(err, ErrOtherRequest):
		problem{
			Type: ProblemOtherRequest, Title: "Idempotency-Key was used for another request",
			Status: http.StatusUnprocessableEntity,
			Detail: "a request with this Idempotency-Key had another method, path, query, media type, encoding or body: use a key of its own for each request, and repeat requests as they were",
		}.write(w)
		return OutcomeOtherRequest
	case r.Context().Err() != nil: // it has been rolled back; whoever is still there may repeat it
		h.unavailable(r, err).write(w)
		return OutcomeInterrupted
	case !errors.Is(err, dedupstore.ErrTxEnded) && errors.As(err, &said):
		if said.err != nil && !errors.Is(said.err, ErrNotStored) {
			h.log(r, body, "the handler failed, and was rolled back", said.err)
		}
		send(w, r, &said.answer, false)
		return said.outcome()
	case errors.Is(err, dedupstore.ErrTxEnded):
		h.log(r, body, "the handler ended its transaction", err)
		failed := h.failed()
		failed.Detail = "it is not known whether something has happened"
		failed.write(w)
		return OutcomeFailed
	case class == dedupstore.Unclassified, class == dedupstore.Permanent:
		h.log(r, body, "the handler failed, and was rolled back", err)
		h.failed().write(w)
		return OutcomeFailed
	default:
		h.log(r, body, "the database could not be used ("+class.String()+")", err)
		h.unavailable(r, err).write(w)
		return OutcomeUnavailable
	}
}

func (h *Handler[Tx]) failed() *problem {
	return &problem{
		Type: ProblemFailed, Title: "The request failed", Status: http.StatusInternalServerError,
		Detail: "nothing has happened: the request may be repeated with the same Idempotency-Key",
	}
}

// unavailable invites to a repetition where that takes effect once.
func (h *Handler[Tx]) unavailable(r *http.Request, err error) *problem {
	p := &problem{
		Type: ProblemUnavailable, Title: "The request could not be handled", Status: http.StatusServiceUnavailable,
		retryAfter: h.cfg.RetryAfter,
		Detail:     "repeat the request later, with the same Idempotency-Key: it takes effect once",
	}
	switch key, _ := h.key(r); {
	case key != "":
	case dedupstore.ClassOf(err) != dedupstore.OutcomeUnknown:
		p.Detail = "nothing has happened: repeat the request later"
	case safeMethod(r.Method):
		p.Detail = "repeat the request later"
	default:
		p.Detail, p.retryAfter = "the request had no Idempotency-Key, and it is not known whether it took effect: a repetition may take effect again", 0
	}
	return p
}

// log tells of what went wrong. The route is in it, and nothing else of the request.
func (h *Handler[Tx]) log(r *http.Request, body []byte, message string, err error) {
	args := []any{"method", r.Method, "route", r.Pattern}
	if err != nil {
		parts := [][]byte{body, []byte(r.URL.RawQuery), []byte(r.Header.Get(defaultHeader)),
			[]byte(r.Header.Get("Authorization")), []byte(r.Header.Get("Cookie"))}
		args = append(args, "error", redact.Message(err.Error(), parts, redact.MaxError), "error.type", errtype.Of(err))
	}
	h.cfg.Logger.ErrorContext(r.Context(), "idempotency: "+message, args...)
}
