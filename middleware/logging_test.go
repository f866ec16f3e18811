package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

// logbook keeps lines as slog writes them in JSON.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logbook) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: level}))
}

func (b *logbook) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for text := range strings.SplitSeq(strings.TrimSpace(b.buf.String()), "\n") {
		if text == "" {
			continue
		}
		var l map[string]any
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// handled runs h and swallows a panic, as the runner does.
func handled(ctx context.Context, h consumer.Handler, msg *consumer.Message) {
	defer func() { _ = recover() }()
	_ = h.Handle(ctx, msg)
}

// The rule of levels, one line for each kind of event.
func TestLoggingLevels(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	result := func(res consumer.Result) consumer.Handler {
		return consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error { msg.Result = res; return nil })
	}
	for _, test := range []struct {
		name    string
		ctx     context.Context
		h       consumer.Handler
		level   string
		outcome string
		err     string // error.type
		stack   bool
	}{
		{name: "success", h: returning(nil), level: "DEBUG", outcome: "success"},
		{name: "duplicate", h: result(consumer.Result{Duplicate: true}), level: "DEBUG", outcome: "duplicate"},
		{name: "skipped", h: result(consumer.Result{Skipped: true}), level: "DEBUG", outcome: "skipped"},
		{name: "handed on", h: result(consumer.Result{HandedOn: errBase}), level: "WARN", outcome: "handed_on",
			err: "*errors.errorString"},
		{name: "not due", h: returning(consumer.NotBefore(time.Now().Add(time.Hour))), level: "DEBUG", outcome: "not_due",
			err: "*consumer.notBefore"},
		{name: "dead letter", h: result(consumer.Result{Dead: true}), level: "WARN", outcome: "dead_letter"},
		{name: "retry", h: returning(consumer.RetryAfter(1500*time.Millisecond, errBase)), level: "WARN", outcome: "retry",
			err: "*errors.errorString"},
		{name: "gave up", h: returning(&consumer.GaveUp{Attempts: 3, Err: errBase}), level: "ERROR", outcome: "gave_up",
			err: "*errors.errorString"},
		{name: "permanent", h: returning(consumer.Permanent(errBase)), level: "ERROR", outcome: "permanent",
			err: "*errors.errorString"},
		{name: "failed", h: returning(errBase), level: "ERROR", outcome: "failed", err: "*errors.errorString"},
		{name: "interrupted", ctx: done, h: returning(context.Canceled), level: "INFO", outcome: "interrupted",
			err: "canceled"},
		{name: "interrupted, but permanent", ctx: done, h: returning(consumer.Permanent(errBase)), level: "ERROR",
			outcome: "permanent", err: "*errors.errorString"},
		{name: "panic, given up", h: compose(explode("boom"), middleware.Retry(1, nil), middleware.Recover()), level: "ERROR",
			outcome: "gave_up", err: "panic", stack: true},
		{name: "panic, retried", h: compose(explode("boom"), middleware.Retry(2, nil), middleware.Recover()), level: "ERROR",
			outcome: "retry", err: "panic", stack: true},
		{name: "panic that goes through", h: explode("boom"), level: "ERROR", outcome: "panic", stack: true},
	} {
		if test.ctx == nil {
			test.ctx = t.Context()
		}
		book := &logbook{}
		handled(test.ctx, middleware.Logging(book.logger(slog.LevelDebug), nil)(test.h), message())
		lines := book.lines(t)
		if len(lines) != 1 {
			t.Errorf("%s: %d lines, want 1: %v", test.name, len(lines), lines)
			continue
		}
		l := lines[0]
		errType, _ := l["error.type"].(string)
		if l["level"] != test.level || l["einmal.outcome"] != test.outcome || errType != test.err {
			t.Errorf("%s: level %v, outcome %v, error.type %q", test.name, l["level"], l["einmal.outcome"], errType)
		}
		if stack, _ := l["exception.stacktrace"].(string); (stack != "") != test.stack || test.stack &&
			!strings.Contains(stack, "recover_test.go") {
			t.Errorf("%s: stack %q", test.name, stack)
		}
		if d, ok := l["einmal.delay_seconds"].(float64); test.name == "retry" && (!ok || d != 1.5) {
			t.Errorf("%s: delay %v", test.name, l["einmal.delay_seconds"])
		}
	}
}

// What a line says, all of it: nothing else may creep in.
func TestLoggingAttributes(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	msg := message()
	msg.Headers = []consumer.Header{{Key: "authorization", Value: []byte("s3cret-header")}, {}}
	msg.Attempt = 2
	handled(t.Context(), middleware.Logging(book.logger(slog.LevelInfo),
		nil)(returning(consumer.RetryAfter(time.Second, errBase))), msg)
	l := book.lines(t)[0]
	if d, ok := l["einmal.duration_seconds"].(float64); !ok || d < 0 || d > 10 {
		t.Errorf("duration %v", l["einmal.duration_seconds"])
	}
	for _, key := range []string{"time", "einmal.duration_seconds"} {
		delete(l, key)
	}
	want := map[string]any{
		"level":                              "WARN",
		"msg":                                "einmal: an attempt has failed, another one follows",
		"messaging.destination.name":         "orders",
		"messaging.destination.partition.id": "3",
		"messaging.kafka.offset":             42.0,
		"messaging.consumer.group.name":      "billing",
		"einmal.consumer":                    "billing/orders",
		"einmal.outcome":                     "retry",
		"einmal.attempt":                     2.0,
		"einmal.delay_seconds":               1.0,
		"error.type":                         "*errors.errorString",
		"error":                              "no stock",
	}
	if !maps.Equal(l, want) {
		t.Errorf("\n got %v\nwant %v", l, want)
	}
	if strings.Contains(book.buf.String(), "s3cret") {
		t.Errorf("a part of the message is in the log: %s", &book.buf)
	}
}

func TestLoggingEventIDIsAChoice(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	h := middleware.Logging(book.logger(slog.LevelInfo), &middleware.LoggingConfig{EventID: true})(returning(errBase))
	for _, id := range []string{"e1", "", strings.Repeat("x", 1<<20), strings.Repeat("ä", 100), "\xff\xfe"} {
		msg := message()
		msg.EventID = id
		handled(t.Context(), h, msg)
	}
	var ids []any
	for _, l := range book.lines(t) {
		ids = append(ids, l["messaging.message.id"])
	}
	want := []any{"e1", nil, strings.Repeat("x", 128), strings.Repeat("ä", 64), "?"}
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
}

func TestLoggingErrorTextIsBoundedAndCanBeReplaced(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	long := errors.New(strings.Repeat("\xc3\xa4", 5000) + "s3cret")
	handled(t.Context(), middleware.Logging(book.logger(slog.LevelInfo), nil)(returning(long)), message())
	redact := &middleware.LoggingConfig{ErrorText: func(error) string { return "redacted" }}
	handled(t.Context(), middleware.Logging(book.logger(slog.LevelInfo), redact)(returning(long)), message())
	lines := book.lines(t)
	if text := lines[0]["error"].(string); len(text) > 1024 || !utf8.ValidString(text) {
		t.Errorf("the text has %d bytes", len(text))
	}
	if text := lines[1]["error"]; text != "redacted" {
		t.Errorf("got %q", text)
	}
}

func TestLoggingDoesNothingBelowItsLevel(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	cfg := &middleware.LoggingConfig{ErrorText: func(error) string { t.Error("asked for the text of an error that is not logged"); return "" }}
	handled(t.Context(), middleware.Logging(book.logger(slog.LevelError+1), cfg)(returning(errBase)), message())
	if lines := book.lines(t); len(lines) != 0 {
		t.Errorf("got %v", lines)
	}
}

// A storm is thinned out by kind and by topic, and what was left out is counted.
func TestLoggingIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		mw := middleware.Logging(book.logger(slog.LevelDebug), &middleware.LoggingConfig{PerSecond: 3})
		storm, other := mw(returning(errBase)), mw(returning(errBase))
		count := func() string {
			var s []string
			for _, l := range book.lines(t) {
				more, _ := l["einmal.suppressed"].(float64)
				s = append(s, fmt.Sprint(l["messaging.kafka.offset"], "+", more))
			}
			book.buf.Reset()
			return strings.Join(s, " ")
		}
		send := func(h consumer.Handler, first, last int64) {
			for offset := first; offset <= last; offset++ {
				msg := message()
				msg.Offset = offset
				handled(t.Context(), h, msg)
			}
		}
		send(storm, 1, 100)
		if got := count(); got != "1+0 2+0 3+0" {
			t.Errorf("first second: %s", got)
		}
		time.Sleep(999 * time.Millisecond)
		send(storm, 101, 101)
		send(other, 1, 1)
		if got := count(); got != "1+0" {
			t.Errorf("at its end, only the other topic: %s", got)
		}
		time.Sleep(time.Millisecond)
		send(storm, 102, 110)
		if got := count(); got != "102+98 103+0 104+0" {
			t.Errorf("next second: %s", got)
		}
	})
}

func TestLoggingKindsAreLimitedApart(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	outcome := error(nil)
	h := middleware.Logging(book.logger(slog.LevelDebug), &middleware.LoggingConfig{PerSecond: 1})(
		consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return outcome }))
	for _, outcome = range []error{nil, errBase, consumer.Permanent(errBase), consumer.RetryAfter(0, errBase)} {
		handled(t.Context(), h, message())
	}
	if n := len(book.lines(t)); n != 4 {
		t.Errorf("%d lines of 4 kinds", n)
	}
}

func TestLoggingWithoutLimitOrByDefault(t *testing.T) {
	t.Parallel()
	for cfg, want := range map[*middleware.LoggingConfig]int{nil: 10, {PerSecond: -1}: 1000} {
		synctest.Test(t, func(t *testing.T) {
			book := &logbook{}
			h := middleware.Logging(book.logger(slog.LevelDebug), cfg)(returning(errBase))
			for range 1000 {
				handled(t.Context(), h, message())
			}
			if n := len(book.lines(t)); n != want {
				t.Errorf("%+v: %d lines of 1000, want %d", cfg, n, want)
			}
		})
	}
}

func TestLoggingSeesGoexit(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = middleware.Logging(book.logger(slog.LevelInfo),
			nil)(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			runtime.Goexit()
			return nil
		})).Handle(t.Context(), message())
	}()
	<-done
	if lines := book.lines(t); len(lines) != 1 || lines[0]["einmal.outcome"] != "panic" {
		t.Errorf("got %v", lines)
	}
}

func TestLoggingPassesErrorsUnchanged(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errBase, consumer.Permanent(errBase)} {
		if err := middleware.Logging(slog.New(slog.DiscardHandler), nil)(returning(want)).Handle(t.Context(), message()); err != want { //nolint:errorlint // as it is
			t.Errorf("got %v, want %v as it is", err, want)
		}
	}
}
