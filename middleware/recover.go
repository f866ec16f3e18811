package middleware

import (
	"context"
	"runtime/debug"

	"github.com/einmal-go/einmal/consumer"
)

// Recover returns a middleware that makes a panic in the links inside it a *consumer.Panic, an error like others: the
// transaction has been rolled back, Retry makes another attempt. Its text does not show the value unless that is an
// error or a string; the stack is in the Stack field. So is an error whose own methods panic.
//
// No value is special: http.ErrAbortHandler has no meaning here. runtime.Goexit is not a panic and goes on; Retry,
// HandOn and DeadLetter act on it as on an error. The runner contains panics by itself, too, but outside the whole
// chain, where they count as a failure of the topic: with Recover they are failed attempts.
func Recover() consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler { return &recoverer{next} }
}

type recoverer struct{ next consumer.Handler }

// Unwrap implements consumer.Wrapper.
func (r *recoverer) Unwrap() consumer.Handler { return r.next }

// Link implements consumer.Linker.
func (r *recoverer) Link() consumer.Link { return consumer.LinkRecover }

// Handle implements consumer.Handler.
func (r *recoverer) Handle(ctx context.Context, msg *consumer.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = consumer.SafeError(&consumer.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	return consumer.SafeError(r.next.Handle(ctx, msg))
}
