package middleware

import (
	"context"
	"runtime/debug"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/errtype"
)

// call calls next, and then with what it came to, whose answer is the link's.
//
// A handler that ends its goroutine (runtime.Goexit) leaves no link a chance to return. What they would return goes
// outward in Result.Exited then, link by link. A panic is none of it: it is for Recover, or for the runner.
func call(ctx context.Context, msg *consumer.Message, next consumer.Handler, then func(err error) error) error {
	return callFor(ctx, msg, msg, next, then)
}

// callFor is call for a part of what msg is handled by, which has a copy of it.
func callFor(ctx context.Context, msg, part *consumer.Message, next consumer.Handler,
	then func(err error) error) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		msg.Result.Exited = &consumer.Exit{Err: then(exited(part))}
	}()
	err := next.Handle(ctx, part)
	returned = true
	return then(consumer.SafeError(err))
}

// exited is what the links inside have made of the end of the goroutine.
func exited(msg *consumer.Message) error {
	if exit := msg.Result.Exited; exit != nil {
		return exit.Err
	}
	return &consumer.Panic{Stack: debug.Stack()}
}

// observe calls next and, when it has ended in whatever way, seen with what became of the attempt and its error.
// panicked says that a panic goes through, or the end of the goroutine of which no link inside has made anything.
func observe(ctx context.Context, msg *consumer.Message, next consumer.Handler,
	seen func(what outcome, err error, panicked bool)) (err error) {
	returned := false
	defer func() {
		switch exit := msg.Result.Exited; {
		case returned:
		case exit != nil:
			seen(outcomeOf(ctx, msg, exit.Err), exit.Err, false)
		default:
			seen(outcomePanic, nil, true)
		}
	}()
	err = consumer.SafeError(next.Handle(ctx, msg))
	returned = true
	seen(outcomeOf(ctx, msg, err), err, false)
	return err
}

// errorText makes a text of err by a function of the user's, whose panic must not keep the message.
func errorText(text func() string, err error) (s string) {
	defer func() {
		if recover() != nil {
			s = "the function ErrorText panicked; the error is of type " + errtype.Of(err)
		}
	}()
	return text()
}
