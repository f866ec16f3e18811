package middleware_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

// logTrail notes lines in a trail, and whether they were written inside a span.
type logTrail struct {
	slog.Handler
	*trail
}

func (h logTrail) Handle(ctx context.Context, r slog.Record) error {
	outcome := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "einmal.outcome" {
			outcome = a.Value.String()
		}
		return true
	})
	where := "outside a span"
	if trace.SpanContextFromContext(ctx).IsValid() {
		where = "in the span"
	}
	h.add("log " + r.Level.String() + " " + outcome + " " + where)
	return nil
}

// spanTrail notes spans in a trail when they end.
type spanTrail struct{ *trail }

func (s spanTrail) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (s spanTrail) Shutdown(context.Context) error                  { return nil }
func (s spanTrail) ForceFlush(context.Context) error                { return nil }

func (s spanTrail) OnEnd(span sdktrace.ReadOnlySpan) {
	step := "span " + span.Name()
	for _, kv := range span.Attributes() {
		if kv.Key == "einmal.outcome" {
			step += " " + kv.Value.AsString()
		}
	}
	s.add(step)
}

// All links in the documented order, as the sequence of what they do.
func TestFullChain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		handler func(ctx context.Context) error
		attempt int
		want    string
	}{
		{
			name:    "success",
			handler: func(context.Context) error { return nil },
			want:    "record, handler, commit, log DEBUG success in the span, span record, span handler, span commit, span process orders success",
		},
		{
			name:    "failure",
			handler: func(context.Context) error { return errBase },
			want:    "record, handler, log WARN retry in the span, span record, span handler, span rollback, span process orders retry",
		},
		{
			name:    "last failure",
			handler: func(context.Context) error { return errBase },
			attempt: 3,
			want:    "record, handler, log ERROR gave_up in the span, span record, span handler, span rollback, span process orders gave_up",
		},
		{
			name:    "panic",
			handler: func(context.Context) error { panic("boom") },
			want:    "record, handler, log ERROR retry in the span, span record, span handler, span rollback, span process orders retry",
		},
		{
			name:    "time-out that the handler swallows",
			handler: func(ctx context.Context) error { <-ctx.Done(); return nil },
			want:    "record, handler, log WARN retry in the span, span record, span handler, span rollback, span process orders retry",
		},
		{
			name:    "permanent",
			handler: func(context.Context) error { return consumer.Permanent(errBase) },
			want:    "record, handler, log ERROR permanent in the span, span record, span handler, span rollback, span process orders permanent",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &trail{}
			s := &store{
				onRecord: func() error { tr.add("record"); return nil },
				onCommit: func() error { tr.add("commit"); return nil },
			}
			logger := slog.New(logTrail{slog.NewTextHandler(nil, &slog.HandlerOptions{Level: slog.LevelDebug}), tr})
			provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spanTrail{tr}))
			chain := compose(
				middleware.Dedup(s, func(ctx context.Context, _ *tx, _ *consumer.Message) error {
					tr.add("handler")
					return test.handler(ctx)
				}, nil),
				middleware.Tracing(&middleware.TracingConfig{TracerProvider: provider}),
				middleware.Logging(logger, nil),
				middleware.Retry(3, nil),
				middleware.Recover(),
				middleware.Timeout(time.Second),
			)
			msg := message()
			msg.Attempt = max(1, test.attempt)
			_ = chain.Handle(t.Context(), msg)
			if got := strings.Join(tr.steps, ", "); got != test.want {
				t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
			}
		})
	}
}

// New takes the documented order, and no other one.
func TestNewKnowsTheOrder(t *testing.T) {
	t.Parallel()
	order := []consumer.Middleware{
		middleware.Tracing(nil), middleware.Logging(nil, nil), middleware.Retry(3, nil), middleware.Recover(),
		middleware.Timeout(time.Second),
	}
	try := func(mws ...consumer.Middleware) error {
		_, err := consumer.New(consumer.Config{
			Brokers: []string{"127.0.0.1:9"}, Group: "billing",
			Topics: map[string]consumer.Topic{"orders": {Middleware: mws, Handler: middleware.Dedup(&store{}, noop, nil)}},
		})
		return err
	}
	if err := try(order...); err != nil {
		t.Errorf("the documented order is refused: %v", err)
	}
	for i := range len(order) - 1 {
		wrong := append([]consumer.Middleware(nil), order...)
		wrong[i], wrong[i+1] = wrong[i+1], wrong[i]
		if err := try(wrong...); err == nil {
			t.Errorf("links %d and %d swapped: not refused", i, i+1)
		}
	}
	if err := try(middleware.Retry(3, nil), middleware.Retry(3, nil)); err == nil {
		t.Error("two Retry: not refused")
	}
}
