package middleware

import (
	"context"
	"errors"
	"strings"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// kindOf says for what kind of failure a message is given up with err, which is permanent or a *consumer.GaveUp.
func kindOf(err error) deadletter.Kind {
	switch {
	case errors.Is(err, ErrCrashLoop):
		return deadletter.KindCrashLoop
	case errors.Is(err, consumer.ErrNoEventID), consumer.IsPermanent(err) && errors.Is(err, dedupstore.ErrInvalidKey):
		return deadletter.KindNoEventID
	case errors.Is(err, ErrTooOld):
		return deadletter.KindTooOld
	case errors.Is(err, dedupstore.ErrTxEnded):
		return deadletter.KindTxEnded
	case errors.Is(err, consumer.ErrUndecodable):
		return deadletter.KindUndecodable
	}
	if consumer.IsPermanent(err) {
		return deadletter.KindPermanent
	}
	if _, ok := errors.AsType[*consumer.Panic](err); ok {
		return deadletter.KindPanicked
	}
	if errors.Is(err, ErrTimeout) || errors.Is(err, consumer.ErrProcessingLimit) {
		return deadletter.KindTimedOut
	}
	return deadletter.KindGaveUp
}

// plain shortens a text and makes it one that databases take.
func plain(text string, limit int) string { return strings.ReplaceAll(cut(text, limit), "\x00", "?") }

// checkIfAble asks what can tell whether it will work. A database that does not answer is asked again until
// StartTimeout.
func checkIfAble(ctx context.Context, what any) error {
	c, ok := what.(dedupstore.Checker)
	if !ok {
		return nil
	}
	if msg, ok := consumer.MessageFrom(ctx); ok { // so that the consumer of the topic is the one that is tried
		ctx = dedupstore.WithKey(ctx, dedupstore.Key{Consumer: msg.Consumer})
	}
	return askedAgain(c.Check(ctx))
}

// errChecked rolls back what a check has written.
var errChecked = errors.New("rolled back on purpose")

// checkInTx asks a writer that can tell in a transaction of store.
func checkInTx[Tx any](ctx context.Context, store dedupstore.Store[Tx], dead deadletter.Writer[Tx]) error {
	checker, ok := dead.(deadletter.TxChecker[Tx])
	transactor, able := store.(dedupstore.Transactor[Tx])
	if !ok || !able {
		return nil
	}
	err := transactor.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := checker.CheckTx(ctx, tx); err != nil {
			return err
		}
		return errChecked
	})
	if errors.Is(err, errChecked) {
		return nil
	}
	return askedAgain(err)
}

// askedAgain makes the error of a database that does not answer one after which the check is repeated.
func askedAgain(err error) error {
	if errors.Is(err, dedupstore.ErrUnavailable) || dedupstore.ClassOf(err) == dedupstore.Unavailable {
		return consumer.RetryAfter(checkAgain, err)
	}
	return err
}
