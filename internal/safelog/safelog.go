// Package safelog keeps a logger of the user's from doing harm: it runs where a panic would end the process, or leave a message undone.
package safelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Logger returns log, or slog.Default() if it is nil, with a handler whose panics are contained. The first one is written to os.Stderr:
// nobody else can be told.
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
	return h.inner.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func() slog.Handler { return h.inner.WithAttrs(attrs) })
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
