package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

var (
	errNotBegun    = errors.New("no transaction has begun within HandlerConfig.BeginTimeout")
	errNotFinished = errors.New("the handler has not finished within HandlerConfig.FinishWithin")
)

// span is the time of a request: until its handler runs it ends with the client's patience and BeginTimeout, and from
// then on with the client's patience or, where the configuration lets it finish, FinishWithin.
type span struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	left   func() bool   // takes back that ctx ends with the client; nil if nothing can
	finish time.Duration // 0 for as long as the client waits
}

func (h *Handler[Tx]) begin(client context.Context) *span {
	s := &span{finish: h.cfg.FinishWithin}
	if s.finish == 0 {
		s.ctx, s.cancel = context.WithCancelCause(client)
	} else {
		s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(client))
		s.left = context.AfterFunc(client, func() { s.cancel(context.Cause(client)) })
	}
	s.timer = time.AfterFunc(h.cfg.BeginTimeout, func() { s.cancel(errNotBegun) })
	return s
}

// begun is called in the transaction, before the handler. Its error says that the time is over.
func (s *span) begun() error {
	if !s.timer.Stop() {
		return errNotBegun
	}
	if s.left == nil {
		return nil
	}
	if !s.left() {
		return context.Canceled // the client has gone
	}
	s.timer = time.AfterFunc(s.finish, func() { s.cancel(errNotFinished) })
	return nil
}

// end says of the request's error that its time was over, where nothing else is known to have happened.
func (s *span) end(err error) error {
	s.timer.Stop()
	if s.left != nil {
		s.left()
	}
	cause := context.Cause(s.ctx)
	s.cancel(nil)
	if err == nil || cause != errNotBegun && cause != errNotFinished || dedupstore.ClassOf(err) == dedupstore.OutcomeUnknown || errors.Is(err, dedupstore.ErrTxEnded) { //nolint:errorlint // the cause itself
		return err
	}
	return dedupstore.WithClass(dedupstore.Unavailable, fmt.Errorf("%w: %w", cause, err))
}
