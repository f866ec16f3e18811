package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// A dead letter whose record another process was faster to write has run nothing.
func TestDeadLetterOfALateDuplicate(t *testing.T) {
	t.Parallel()
	msg := message()
	if err := middleware.DeadLetter[*tx](lateDuplicate{}, &cemetery{}, nil)(gaveUp(errBase)).Handle(t.Context(),
		msg); err != nil {
		t.Fatal(err)
	}
	if res := msg.Result; !res.Duplicate || res.Dead || !res.HandlerStart.IsZero() || !res.HandlerEnd.IsZero() {
		t.Errorf("%+v", res)
	}
}

// A message that was suspected, and has returned, is suspected no more: it may be handled beside others.
func TestCrashLoopForgetsASuspicion(t *testing.T) {
	t.Parallel()
	s := &starts{counts: map[string]int{"suspect": 1}}
	mw := middleware.CrashLoop(s, nil)
	suspect := assigned(t, mw, returning(errBase), 10)
	if err := suspect.Handle(t.Context(), numbered("suspect")); !errors.Is(err, errBase) {
		t.Fatal(err)
	}
	beside := assigned(t, mw, consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
		return suspect.Handle(ctx, numbered("suspect"))
	}), 10)
	if err := beside.Handle(t.Context(), numbered("another")); !errors.Is(err, errBase) {
		t.Errorf("%v, want that it is handled", err)
	}
}

// What steps have skipped, and how their transactions ended, is added up.
func TestSequenceAddsUpSkipsAndTransactions(t *testing.T) {
	t.Parallel()
	step := func(name string, res consumer.Result) middleware.Step {
		return middleware.Step{Name: name, Handler: result(res)}
	}
	msg := message()
	h := middleware.Sequence(
		step("a", consumer.Result{Skipped: true, Transactions: consumer.Transactions{Committed: 1, Unknown: 2}}),
		step("b", consumer.Result{Transactions: consumer.Transactions{Committed: 3, RolledBack: 4}}),
	)
	if err := h.Handle(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	if want := (consumer.Transactions{Committed: 4, RolledBack: 4, Unknown: 2}); !msg.Result.Skipped ||
		msg.Result.Transactions != want {
		t.Errorf("%+v", msg.Result)
	}
	handOn := middleware.HandOn(&store{}, "1m", func(context.Context, *tx, *consumer.Message) error { return nil }, nil)
	_, err := consumer.New(topics(consumer.Topic{Middleware: []consumer.Middleware{handOn}, Handler: h}))
	if err == nil || !strings.Contains(err.Error(), "inside HandOn") {
		t.Errorf("HandOn around it: %v", err)
	}
}

// The last step of a Sequence that ends its goroutine, and is dead for it, has no step behind it that another attempt
// would have to begin.
func TestSequenceWhoseLastStepExits(t *testing.T) {
	t.Parallel()
	s, c, made := &store{}, &cemetery{}, 0
	first := middleware.Step{Name: "first",
		Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { made++; return nil })}
	last := middleware.Step{
		Name: "last", Middleware: []consumer.Middleware{middleware.DeadLetter(s, c, nil), middleware.Retry(1, nil)},
		Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { runtime.Goexit(); return nil }),
	}
	out := consumertest.Run(t, consumer.Topic{Handler: middleware.Sequence(first, last)},
		consumertest.Message("orders", "e1", nil))
	if out.Err != nil || len(c.dead) != 1 || made != 1 {
		t.Errorf("%v: %d dead letters, %d attempts, want one of each", out, len(c.dead), made)
	}
}

// A stack in the log has at most 16 KiB.
func TestLoggingCutsStacks(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	long := &consumer.Panic{Value: "boom", Stack: []byte(strings.Repeat("x", 1<<20))}
	handled(t.Context(), middleware.Logging(book.logger(slog.LevelInfo), nil)(returning(long)), message())
	found := false
	for _, l := range book.lines(t) {
		for _, v := range l {
			s, ok := v.(string)
			found = found || ok && len(s) == 16<<10
			if len(s) > 16<<10 {
				t.Errorf("%d bytes in the log", len(s))
			}
		}
	}
	if !found {
		t.Error("there is no stack")
	}
}

// The time that a Dedup waits for the database counts in none of the time-outs around it, and each goes on where it
// was.
func TestTimeoutsAroundAWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outer, inner, wait, handler time.Duration
		ends                        bool
	}{
		"in time":           {5 * time.Second, 4 * time.Second, 8 * time.Second, 3 * time.Second, false},
		"the inner is over": {5 * time.Second, 4 * time.Second, 8 * time.Second, 4500 * time.Millisecond, true},
		"the outer is over": {2 * time.Second, 4 * time.Second, 8 * time.Second, 3 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{onRecord: func() error { time.Sleep(test.wait); return nil }}
			h := compose(middleware.Dedup(s, func(ctx context.Context, _ *tx, _ *consumer.Message) error {
				select {
				case <-time.After(test.handler):
				case <-ctx.Done():
				}
				return ctx.Err()
			}, nil), middleware.Timeout(test.outer), middleware.Timeout(test.inner))
			if err := h.Handle(t.Context(), message()); errors.Is(err, middleware.ErrTimeout) != test.ends ||
				(err == nil) == test.ends {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// After a wait a time-out goes on where it was: what links took before it counts.
func TestTimeoutGoesOnAfterAWait(t *testing.T) {
	t.Parallel()
	for handler, ends := range map[time.Duration]bool{1500 * time.Millisecond: false, 3 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{onRecord: func() error { time.Sleep(8 * time.Second); return nil }}
			before := func(next consumer.Handler) consumer.Handler {
				return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
					time.Sleep(2 * time.Second)
					return next.Handle(ctx, msg)
				})
			}
			h := compose(middleware.Dedup(s, func(ctx context.Context, _ *tx, _ *consumer.Message) error {
				select {
				case <-time.After(handler):
				case <-ctx.Done():
				}
				return ctx.Err()
			}, nil), middleware.Timeout(4*time.Second), before)
			if err := h.Handle(t.Context(), message()); errors.Is(err, middleware.ErrTimeout) != ends || (err == nil) == ends {
				t.Errorf("2 s before, %v in the handler: %v", handler, err)
			}
		})
	}
}

// A database that says nothing for too long, and one that fails before the handler begins, is away: the event is not to
// blame.
func TestWhatFailsBeforeTheHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record func() error
		limit  time.Duration
	}{
		"silent":              {func() error { time.Sleep(15 * time.Second); return nil }, time.Second},
		"silent for a while":  {func() error { time.Sleep(25 * time.Second); return nil }, 20 * time.Second},
		"an error of no kind": {func() error { return errBase }, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := middleware.Timeout(c.limit)(middleware.Dedup(&store{onRecord: c.record}, noop, nil))
			if err := h.Handle(t.Context(), message()); err == nil || errors.Is(err, middleware.ErrTimeout) ||
				dedupstore.ClassOf(err) != dedupstore.Unavailable {
				t.Errorf("%s: %v, of class %v", name, err, dedupstore.ClassOf(err))
			}
		})
	}
}

// The deadline that a handler sees is the first of those around it.
func TestTimeoutsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sooner, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for want, ctx := range map[time.Duration]context.Context{time.Second: sooner, 5 * time.Second: t.Context()} {
			err := middleware.Timeout(5*time.Second)(consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
				if at, ok := ctx.Deadline(); !ok || time.Until(at) != want {
					t.Errorf("the deadline is in %v, want %v", time.Until(at), want)
				}
				return nil
			})).Handle(ctx, message())
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// The latency of an effect is not negative where clocks differ, and is not measured of a message without a time.
func TestMetricsLatencyOfOddTimes(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]string{time.Now().Add(time.Hour): "einmal.effect.latency[] 1: 0", {}: ""} {
		m, msg := newMeasured(t), message()
		msg.Timestamp = at
		handled(t.Context(), m.mw(returning(nil)), msg)
		points := m.points()
		i := slices.IndexFunc(points, func(p string) bool { return strings.HasPrefix(p, "einmal.effect.latency") })
		if got := append(points, "")[(i+len(points)+1)%(len(points)+1)]; got != want {
			t.Errorf("of %v: %q, want %q", at, got, want)
		}
	}
}

// The standard chain gives its handler the time that was asked for, and its Logger is that of all links.
func TestStandardPassesOn(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	s := &store{}
	cfg := &middleware.StandardConfig[*tx]{Timeout: time.Minute, DeadLetters: &cemetery{fails: errBase},
		Logger: book.logger(slog.LevelError)}
	topic := middleware.Standard(s, cfg).Topic(func(ctx context.Context, _ *tx, _ *consumer.Message) error {
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Minute {
			t.Errorf("the deadline is %v, %v", at, ok)
		}
		return consumer.Permanent(errBase)
	})
	d := consumertest.New(t, topics(topic), nil).Deliver(t.Context(), consumertest.Message("orders", "e1", nil))
	if d.Err == nil {
		t.Fatal("the dead letter was written")
	}
	if !slices.ContainsFunc(book.lines(t),
		func(l map[string]any) bool { return strings.Contains(l["msg"].(string), "cannot be written") }) {
		t.Errorf("DeadLetter writes elsewhere: %v", book.lines(t))
	}
}

// The configurations of its outer links reach them, with the provider of all, or one of their own.
func TestStandardConfiguresItsLinks(t *testing.T) {
	t.Parallel()
	book, of, own := &logbook{}, tracetest.NewInMemoryExporter(), tracetest.NewInMemoryExporter()
	provider := func(e *tracetest.InMemoryExporter) *sdktrace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSyncer(e))
	}
	for _, tracing := range []*middleware.TracingConfig{nil, {Parent: true}, {TracerProvider: provider(own)}} {
		cfg := &middleware.StandardConfig[*tx]{
			Tracing: tracing, Logging: &middleware.LoggingConfig{EventID: true}, Logger: book.logger(slog.LevelDebug),
			TracerProvider: provider(of),
		}
		msg := consumertest.Message("orders", "e1", nil)
		msg.Headers = append(msg.Headers, consumer.Header{Key: "traceparent", Value: []byte(traceparent)})
		if d := consumertest.New(t, topics(middleware.Standard(&store{}, cfg).Topic(noop)), nil).Deliver(t.Context(),
			msg); d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	for _, l := range book.lines(t) {
		if l["messaging.message.id"] != "e1" {
			t.Errorf("Logging is configured otherwise: %v", l)
		}
	}
	var parents []bool
	for _, span := range of.GetSpans() {
		if strings.HasPrefix(span.Name, "process") {
			parents = append(parents, span.Parent.IsValid())
		}
	}
	if !slices.Equal(parents, []bool{false, true}) || len(own.GetSpans()) == 0 {
		t.Errorf("spans with a parent: %v, want the second of two; %d spans of the link's own provider", parents,
			len(own.GetSpans()))
	}
}

// A Route shows the links of its default to New.
func TestRouteShowsItsDefault(t *testing.T) {
	t.Parallel()
	routes := map[string]consumer.Handler{"a": returning(nil)}
	h := middleware.Route(middleware.ByHeader("type"), routes,
		&middleware.RouteConfig{Default: middleware.Dedup[*tx](nil, noop, nil)})
	if _, err := consumer.New(topics(consumer.Topic{Handler: h})); err == nil ||
		!strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("%v", err)
	}
}

// What the event is not to blame for is asked for again with pauses that grow.
func TestRetryPausesOfAnOutageGrow(t *testing.T) {
	t.Parallel()
	retry := middleware.Retry(2, &middleware.RetryConfig{Base: time.Second, Max: time.Hour})
	longest := time.Duration(0)
	for range 50 {
		var last error
		for attempt := range 6 {
			msg := message()
			msg.Attempt, msg.LastError = attempt+1, last
			last = retry(returning(dedupstore.ErrUnavailable)).Handle(t.Context(), msg)
		}
		d, ok := consumer.Delay(last)
		if !ok || d > 32*time.Second {
			t.Fatalf("%v, %v", d, last)
		}
		longest = max(longest, d)
	}
	if longest < 2*time.Second {
		t.Errorf("the longest of 50 pauses after the sixth attempt is %v", longest)
	}
}
