package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/middleware"
)

// unsafe is an error whose methods use what is not there, and one that wraps itself.
type unsafeUnwrap struct{ inner *unsafeUnwrap }

func (e *unsafeUnwrap) Error() string { return "unsafe" }
func (e *unsafeUnwrap) Unwrap() error { return e.inner.inner.inner }

type unsafeError struct{ inner error }

func (e *unsafeError) Error() string { return e.inner.Error() }

type unsafeIs struct{ inner error }

func (e *unsafeIs) Error() string { return "unsafe" }
func (e *unsafeIs) Is(error) bool { return e.inner.Error() == "" }
func (e *unsafeIs) As(any) bool   { return e.inner.Error() == "" }

type itself struct{}

func (e *itself) Error() string { return "itself" }
func (e *itself) Unwrap() error { return e }

// ends are what a handler can do to those who look at its result.
var ends = map[string]func() error{
	"Unwrap panics":           func() error { return &unsafeUnwrap{} },
	"Error panics":            func() error { return &unsafeError{} },
	"Error panics, wrapped":   func() error { return errors.Join(errBase, &unsafeError{}) },
	"a nil pointer":           func() error { return (*unsafeError)(nil) },
	"Is panics":               func() error { return fmt.Errorf("wrapped: %w", &unsafeIs{}) },
	"it wraps itself":         func() error { return &itself{} },
	"permanent, Error panics": func() error { return consumer.Permanent(&unsafeError{}) },
	"a panic with such":       func() error { panic(&unsafeUnwrap{}) },
	"runtime.Goexit":          func() error { runtime.Goexit(); return nil },
}

// formatting is a logger whose handler asks errors for their texts.
var formatting = slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // slog.DiscardHandler asks for nothing

// Whatever the handler's error does to those who look at it, and where the handler ends its goroutine, attempts are
// counted and the message is given up.
func TestUnsafeErrorsAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		for _, where := range []string{"plain", "in a transaction", "in a step"} {
			for _, policy := range []consumer.OnFailure{consumer.KeepTrying, consumer.Stop} {
				t.Run(fmt.Sprint(name, ", ", where, ", ", policy), func(t *testing.T) {
					t.Parallel()
					c, s := &cemetery{}, &store{}
					mws := []consumer.Middleware{
						middleware.Tracing(nil), middleware.Metrics(nil), middleware.Logging(formatting, nil),
						middleware.DeadLetter(s, c, nil), middleware.Retry(3, nil), middleware.Recover(), middleware.Timeout(time.Minute),
					}
					attempts := 0
					var h consumer.Handler = consumer.HandlerFunc(func(context.Context, *consumer.Message) error { attempts++; return end() })
					if where != "plain" {
						h = middleware.Dedup(s, func(context.Context, *tx, *consumer.Message) error { attempts++; return end() }, nil)
					}
					if where == "in a step" {
						after := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })
						h, mws = middleware.Sequence(middleware.Step{Name: "first", Handler: h, Middleware: mws[3:]},
							middleware.Step{Name: "second", Handler: after}), mws[:3]
					}
					run := consumertest.New(t, consumer.Config{Group: "g", Middleware: mws,
						Topics: map[string]consumer.Topic{"orders": {Handler: h, OnFailure: policy}}}, nil)
					got := run.Deliver(t.Context(),
						&consumer.Message{Topic: "orders", Headers: []consumer.Header{{Key: "event-id", Value: []byte("e1")}}})
					want := 3
					if strings.HasPrefix(name, "permanent") {
						want = 1
					}
					if got.Err != nil || attempts != want || len(c.dead) != 1 {
						t.Errorf("%v after %d attempts, %d dead letters; want %d attempts and one", got.Err, attempts, len(c.dead), want)
					}
				})
			}
		}
	}
}

// What the user's functions beside the handler do to the chain: nothing.
func TestUnsafeTextsAndLoggers(t *testing.T) {
	t.Parallel()
	c := &cemetery{}
	broken := slog.New(brokenHandler{})
	h := compose(returning(errBase),
		middleware.Logging(broken, &middleware.LoggingConfig{ErrorText: func(error) string { panic("text") }}),
		middleware.DeadLetter(&store{}, c,
			&middleware.DeadLetterConfig{Logger: broken, ErrorText: func(error, *consumer.Message) string { panic("text") }}),
		middleware.Retry(1, nil),
	)
	if err := h.Handle(t.Context(), message()); err != nil || len(c.dead) != 1 ||
		!strings.Contains(c.dead[0].Error, "ErrorText panicked") {
		t.Errorf("%v, dead letters %+v", err, c.dead)
	}
	if c.dead[0].Kind != deadletter.KindGaveUp {
		t.Errorf("kind %s", c.dead[0].Kind)
	}
}

type brokenHandler struct{}

func (brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenHandler) Handle(context.Context, slog.Record) error { panic("log") }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h brokenHandler) WithGroup(string) slog.Handler           { return h }

// Retry and DeadLetter look at such errors also where no link inside has made them safe.
func TestUnsafeErrorsOfABareHandler(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		if name == "a panic with such" { // without Recover it is the runner's
			continue
		}
		c, attempts := &cemetery{}, 0
		h := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { attempts++; return end() })
		topic := consumer.Topic{Handler: h, Middleware: []consumer.Middleware{middleware.DeadLetter(&store{}, c, nil),
			middleware.Retry(3, nil)}}
		if out := consumertest.Run(t, topic, consumertest.Message("orders", "e1", nil)); out.Err != nil || len(c.dead) != 1 ||
			attempts > 3 {
			t.Errorf("%s: %v, %d dead letters after %d attempts", name, out, len(c.dead), attempts)
		}
	}
}
