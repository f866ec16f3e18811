package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// unsafe is an error whose method uses what is not there.
type unsafe struct{ inner *unsafe }

func (e *unsafe) Error() string { return "unsafe" }
func (e *unsafe) Unwrap() error { return e.inner.inner }

type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

func TestSafeError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errHandler, errors.Join(errHandler, nil), consumer.Permanent(errHandler)} {
		if got := consumer.SafeError(err); got != err { //nolint:errorlint // the very same
			t.Errorf("%v became %v", err, got)
		}
	}
	for _, err := range []error{&unsafe{}, errors.Join(errHandler, &unsafe{}), endless{},
		&consumer.Panic{Value: &unsafe{}}} {
		got := consumer.SafeError(err)
		if p, ok := errors.AsType[*consumer.Panic](got); !ok || p.Error() == "" || errors.Is(got, errHandler) {
			t.Errorf("%T became %v", err, got)
		}
	}
	if err := consumer.SafeError(consumer.Permanent(&unsafe{})); !consumer.IsPermanent(err) {
		t.Errorf("a permanent error became %v", err)
	}
	if _, ok := consumer.Delay(consumer.SafeError(consumer.RetryAfter(1, &unsafe{}))); !ok {
		t.Error("a RetryAfter is none any more")
	}
}

type panickingLog struct{}

func (panickingLog) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingLog) Handle(context.Context, slog.Record) error { panic("log") }
func (h panickingLog) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h panickingLog) WithGroup(string) slog.Handler           { return h }

// The runner looks at errors, and logs them, where a panic would end the process.
func TestUnsafeErrorsEndNoProcess(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 4)...)
	var s seen
	var tries [4]atomic.Int32
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if tries[msg.Offset].Add(1) > 1 {
			return s.Handle(ctx, msg)
		}
		switch msg.Offset {
		case 0:
			return &unsafe{}
		case 1:
			return endless{}
		case 2:
			panic(&unsafe{})
		default:
			runtime.Goexit()
		}
		return nil
	}))
	cfg.Logger = slog.New(panickingLog{})
	m := start(t, cfg)
	eventually(t, "all are handled at their second attempt", func() bool { return s.len() == 4 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}
