package middleware

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/safelog"
)

// LoggingConfig is what can be chosen about Logging. Nil means all defaults.
type LoggingConfig struct {
	// PerSecond is how many lines of one kind a topic may write in a second of this process; the next line of the kind
	// says in einmal.suppressed how many were left out. Defaults to 10: a storm of failures stays readable and costs next
	// to nothing. Negative means no limit.
	PerSecond int

	// EventID adds the event's id to each line, as messaging.message.id, cut to 128 bytes. Off by default: an id may have
	// been taken from a record's key or its value, and those do not belong in a log. Topic, partition and offset, which
	// are always there, name the message as well.
	EventID bool

	// ErrorText makes the text of an error for the line. Defaults to consumer.Message.ErrorText, so to Config.ErrorText
	// where that is set: what looks like a secret, or repeats a part of the message (PostgreSQL's "invalid input syntax
	// for type integer" shows the value), is masked. Where that is not enough, return less: the line has error.type, too.
	// The text is cut to 1,024 bytes.
	ErrorText func(error) string
}

const (
	defaultPerSecond = 10
	maxErrorText     = 1024
	maxEventID       = 128
	maxStack         = 16 << 10
)

// Logging returns a middleware that writes one line for each attempt that is worth one, instead of the runner's line
// about a failed one. Nil for logger means slog.Default().
//
//	what became of the attempt              level
//	success, duplicate, skipped, not due    Debug
//	interrupted by a drain                  Info   the message comes again
//	retry: another attempt follows          Warn
//	dead letter, handed on                  Warn   written, and done with
//	gave up, permanent, failed otherwise    Error  OnFailure applies
//	a panic, whatever follows on it         Error  with the stack: it is a defect
//
// The attributes have the names of OpenTelemetry's conventions for messaging. Keys, values and headers are not among
// them. Lines are written with the attempt's context, so that a slog.Handler that looks for a span there finds that of
// Tracing, which stands outside.
func Logging(logger *slog.Logger, cfg *LoggingConfig) consumer.Middleware {
	l := logging{log: safelog.Logger(logger)}
	if cfg != nil {
		l.cfg = *cfg
	}
	if l.cfg.PerSecond == 0 {
		l.cfg.PerSecond = defaultPerSecond
	}
	return func(next consumer.Handler) consumer.Handler {
		return &logging{next: next, log: l.log, cfg: l.cfg, limit: limiter{perSecond: l.cfg.PerSecond}}
	}
}

type logging struct {
	next  consumer.Handler
	log   *slog.Logger
	cfg   LoggingConfig
	limit limiter
}

// Unwrap implements consumer.Wrapper.
func (l *logging) Unwrap() consumer.Handler { return l.next }

// Link implements consumer.Linker.
func (l *logging) Link() consumer.Link { return consumer.LinkLogging }

// Handle implements consumer.Handler.
func (l *logging) Handle(ctx context.Context, msg *consumer.Message) error {
	start := time.Now()
	return observe(ctx, msg, l.next, func(what outcome, err error, panicked bool) {
		why := cmp.Or(err, msg.Result.DeadErr, msg.Result.HandedOn)
		trace := stack(why)
		if panicked {
			trace = debug.Stack()
		}
		l.write(ctx, msg, start, what, why, trace)
	})
}

// stack returns the stack of a panic that Recover has made an error of.
func stack(err error) []byte {
	if p, ok := errors.AsType[*consumer.Panic](err); ok {
		return p.Stack
	}
	return nil
}

// line is the rule for a kind of event.
type line struct {
	level slog.Level
	text  string
}

var lines = map[outcome]line{
	outcomeSuccess:     {slog.LevelDebug, "einmal: handled a message"},
	outcomeDuplicate:   {slog.LevelDebug, "einmal: skipped a duplicate"},
	outcomeSkipped:     {slog.LevelDebug, "einmal: skipped a message that is not for this consumer"},
	outcomeInterrupted: {slog.LevelInfo, "einmal: an attempt was interrupted, the message comes again"},
	outcomeRetry:       {slog.LevelWarn, "einmal: an attempt has failed, another one follows"},
	outcomeDeadLetter:  {slog.LevelWarn, "einmal: wrote a dead letter"},
	outcomeHandedOn:    {slog.LevelWarn, "einmal: handed a message on"},
	outcomeNotDue:      {slog.LevelDebug, "einmal: a message is not due"},
	outcomeGaveUp:      {slog.LevelError, "einmal: gave a message up"},
	outcomePermanent:   {slog.LevelError, "einmal: no attempt can handle a message"},
	outcomeFailed:      {slog.LevelError, "einmal: could not handle a message"},
	outcomePanic:       {slog.LevelError, "einmal: a handler panicked or ended its goroutine"},
}

func (l *logging) write(ctx context.Context, msg *consumer.Message, start time.Time, what outcome, err error,
	stack []byte) {
	kind := what
	if stack != nil {
		kind = outcomePanic
	}
	rule := lines[kind]
	if !l.log.Enabled(ctx, rule.level) {
		return
	}
	msg.Result.Logged = err != nil
	now := time.Now()
	suppressed, ok := l.limit.allow(kind, now)
	if !ok {
		return
	}
	attrs := append(make([]slog.Attr, 0, 16),
		slog.String(string(names.Topic), msg.Topic),
		slog.String(string(names.Partition), strconv.Itoa(int(msg.Partition))),
		slog.Int64(string(names.Offset), msg.Offset),
		slog.String(string(names.Group), msg.Group),
		slog.String(string(names.Consumer), msg.Consumer),
		slog.String(string(names.Outcome), string(what)),
		slog.Int(string(names.Attempt), msg.Attempt),
		slog.Float64(string(names.Duration), now.Sub(start).Seconds()),
	)
	if l.cfg.EventID && msg.EventID != "" {
		attrs = append(attrs, slog.String(string(names.MessageID), redact.Text(msg.EventID, maxEventID)))
	}
	if delay, ok := consumer.Delay(err); ok {
		attrs = append(attrs, slog.Float64(string(names.Delay), delay.Seconds()))
	}
	if err != nil {
		attrs = append(attrs, slog.String(string(names.ErrorType), errtype.Of(err)),
			slog.String("error", cut(errorText(func() string { return l.text(err, msg) }, err), maxErrorText)))
	}
	if stack != nil {
		attrs = append(attrs, slog.String(string(names.Stack), cut(string(stack), maxStack)))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int(string(names.Suppressed), suppressed))
	}
	l.log.LogAttrs(ctx, rule.level, rule.text, attrs...)
}

func (l *logging) text(err error, msg *consumer.Message) string {
	if l.cfg.ErrorText == nil {
		return msg.ErrorText(err, maxErrorText)
	}
	return l.cfg.ErrorText(err)
}

// limiter allows so many lines of each kind in each second.
type limiter struct {
	perSecond int // negative for no limit

	mu    sync.Mutex
	kinds map[outcome]*tally
}

// tally counts the lines of one kind.
type tally struct {
	since      time.Time // start of the second
	allowed    int       // in it
	suppressed int       // since the last line that was allowed
}

// allow reports whether a line of that kind may be written now, and how many before it were not.
func (l *limiter) allow(kind outcome, now time.Time) (suppressed int, ok bool) {
	if l.perSecond < 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[kind]
	if t == nil {
		if l.kinds == nil {
			l.kinds = map[outcome]*tally{}
		}
		t = &tally{since: now}
		l.kinds[kind] = t
	}
	if now.Sub(t.since) >= time.Second {
		t.since, t.allowed = now, 0
	}
	if t.allowed >= l.perSecond {
		t.suppressed++
		return 0, false
	}
	t.allowed++
	suppressed, t.suppressed = t.suppressed, 0
	return suppressed, true
}
