package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/safelog"
)

// FilterConfig is what can be chosen about Filter. Nil means all defaults.
type FilterConfig struct {
	// Skipped is called for each message that is skipped, for a metric. It must be safe for concurrent use and return
	// soon.
	Skipped func(msg *consumer.Message)

	// Logger is told, once a minute at most, how many messages were skipped. Defaults to slog.Default().
	Logger *slog.Logger
}

// Filter returns a middleware that skips the messages for which foreign returns true: those of a shared topic that are
// meant for others. They take no effect, are not recorded, and their offsets are committed; msg.Result.Skipped is set.
// Nothing else in this package skips a message, and none is skipped without being counted: in Logging's lines and
// Tracing's spans (the outcome "skipped"), by FilterConfig.Skipped, and in a line of the log now and then.
//
// foreign must say so of the message alone, and the same at any time: a message that is ours and cannot be read is no
// foreign one, but a failure. OtherType makes one from a header. foreign must be safe for concurrent use. consumer.New
// refuses nil.
func Filter(foreign func(msg *consumer.Message) bool, cfg *FilterConfig) consumer.Middleware {
	f := filter{foreign: foreign}
	if cfg != nil {
		f.cfg = *cfg
	}
	f.cfg.Logger = safelog.Logger(f.cfg.Logger)
	return func(next consumer.Handler) consumer.Handler {
		return &filter{next: next, foreign: f.foreign, cfg: f.cfg}
	}
}

type filter struct {
	next    consumer.Handler
	foreign func(msg *consumer.Message) bool
	cfg     FilterConfig
	skipped seldom
}

// Unwrap implements consumer.Wrapper.
func (f *filter) Unwrap() consumer.Handler { return f.next }

// Validate implements consumer.Validator.
func (f *filter) Validate([]consumer.Handler) error {
	if f.foreign == nil {
		return errors.New("middleware.Filter: foreign is nil: pass a function that tells which messages are not ours, OtherType for example")
	}
	return nil
}

// Handle implements consumer.Handler.
func (f *filter) Handle(ctx context.Context, msg *consumer.Message) error {
	if err := f.Validate(nil); err != nil {
		return err // not permanent: nothing is wrong with the message
	}
	if !f.foreign(msg) {
		return f.next.Handle(ctx, msg)
	}
	msg.Result.Skipped = true
	if f.cfg.Skipped != nil {
		f.cfg.Skipped(msg)
	}
	if n, ok := f.skipped.now(time.Now()); ok {
		f.cfg.Logger.InfoContext(ctx, "einmal: skipped messages that are not for this consumer",
			slog.String(string(names.Topic), msg.Topic), slog.String(string(names.Consumer), msg.Consumer),
			slog.Int("skipped", n))
	}
	return nil
}

// OtherType returns a function for Filter, to which a message is foreign if its header of that name has a value that is
// none of ours. A message without the header is not foreign: what it is, is not said.
func OtherType(header string, ours ...string) func(msg *consumer.Message) bool {
	known := make(map[string]bool, len(ours))
	for _, value := range ours {
		known[value] = true
	}
	return func(msg *consumer.Message) bool {
		value, ok := msg.Header(header)
		return ok && !known[string(value)]
	}
}
