// Package safelog keeps a logger of the user's from doing harm: it runs where a panic would end the process, or leave a
// message undone. It keeps from the logger what must not be in a line: see package redact.
package safelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/redact"
)

// Logger returns log, or slog.Default() if it is nil, with a handler whose panics are contained, and that gets no
// secret in a text or an error, and no more than 16 KiB of one (1 KiB of an error). A line with an error has its name,
// too. The first panic is written to os.Stderr: nobody else can be told.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		log = slog.Default()
	}
	if _, ok := log.Handler().(*handler); ok {
		return log
	}
	return slog.New(&handler{inner: log.Handler(), said: &sync.Once{}})
}

type handler struct {
	inner slog.Handler
	said  *sync.Once
}

var errPanicked = errors.New("the log's handler panicked")

// contain makes an error of a panic.
func (h *handler) contain(err *error) {
	v := recover()
	if v == nil {
		return
	}
	*err = errPanicked
	h.said.Do(func() {
		fmt.Fprintf(os.Stderr, "einmal: the handler of the Logger panicked (%T); its lines are lost, this is said once\n", v)
	})
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	var err error
	defer h.contain(&err)
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer h.contain(&err)
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	var cause error
	named := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			cause, _ = a.Value.Any().(error)
		case errorType:
			named = true
		}
		clean.AddAttrs(redacted(a))
		return true
	})
	if cause != nil && !named {
		clean.AddAttrs(slog.String(errorType, errtype.Of(cause)))
	}
	return h.inner.Handle(ctx, clean)
}

// errorType is the attribute that names an error, in the words that spans, metrics and Status use.
const errorType = "error.type"

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func() slog.Handler {
		clean := make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			clean[i] = redacted(a)
		}
		return h.inner.WithAttrs(clean)
	})
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func() slog.Handler { return h.inner.WithGroup(name) })
}

// with derives a handler. It is h itself if that panics.
func (h *handler) with(derive func() slog.Handler) slog.Handler {
	inner := h.inner
	var err error
	func() {
		defer h.contain(&err)
		inner = derive()
	}()
	return &handler{inner: inner, said: h.said}
}

// maxText is the length of a text in bytes, at most: that of a stack.
const maxText = 16 << 10

// shown is what a line has of a text. Handlers that write JSON leave C1 controls and direction marks as they are.
func shown(text string) string { return redact.Lines(redact.Text(text, maxText)) }

// redacted returns a without what must not be in a line.
func redacted(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(shown(value.String()))
	case slog.KindGroup:
		group := value.Group()
		clean := make([]slog.Attr, len(group))
		for i, inner := range group {
			clean[i] = redacted(inner)
		}
		a.Value = slog.GroupValue(clean...)
	case slog.KindAny:
		a.Value = redactedAny(value.Any())
	default: // numbers and times
	}
	return a
}

// redactedAny returns v as what handlers write of it, where that is a text or several.
func redactedAny(v any) slog.Value {
	switch v := v.(type) {
	case error:
		return slog.AnyValue(redact.Error(v))
	case []string:
		texts := make([]string, len(v))
		for i, text := range v {
			texts[i] = shown(text)
		}
		return slog.AnyValue(texts)
	case []byte:
		return slog.StringValue(shown(string(v)))
	case fmt.Stringer:
		return slog.StringValue(shown(v.String()))
	}
	return slog.AnyValue(v)
}
