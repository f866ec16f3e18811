package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	otelnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// measured is a chain's metrics.
type measured struct {
	t      testing.TB
	reader *sdkmetric.ManualReader
	mw     consumer.Middleware
	zeros  bool // points returns series of 0, too
}

func newMeasured(t testing.TB) *measured {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	return &measured{t: t, reader: reader,
		mw: middleware.Metrics(&middleware.MetricsConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})}
}

// points are all data points: "name{attributes} count", of a histogram with its sum.
func (m *measured) points() (points []string) {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, in := range scope.Metrics {
			switch data := in.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if p.Value > 0 || m.zeros {
						points = append(points, fmt.Sprintf("%s%s %d", in.Name, own(p.Attributes), p.Value))
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points = append(points, fmt.Sprintf("%s%s %d: %v", in.Name, own(p.Attributes), p.Count, p.Sum))
				}
			default:
				m.t.Fatalf("%s is a %T", in.Name, data)
			}
		}
	}
	slices.Sort(points)
	return points
}

// own leaves out what all points have in common.
func own(set attribute.Set) string {
	var own []string
	for _, kv := range set.ToSlice() {
		switch kv.Key {
		case "messaging.system", "messaging.destination.name", "messaging.consumer.group.name", "messaging.operation.name":
		default:
			own = append(own, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
		}
	}
	return fmt.Sprint(own)
}

func (m *measured) want(name string, want ...string) {
	m.t.Helper()
	got := m.points()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// What became of an attempt, in the words of log lines and spans.
func TestMetricsOutcomes(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	tooOld := middleware.Dedup(&store{}, noop, &middleware.DedupConfig{Window: time.Hour})
	for _, test := range []struct {
		name    string
		ctx     context.Context
		h       consumer.Handler
		outcome string
		errType string
	}{
		{name: "success", h: returning(nil), outcome: "success"},
		{name: "duplicate", h: result(consumer.Result{Duplicate: true}), outcome: "duplicate"},
		{name: "skipped", h: result(consumer.Result{Skipped: true}), outcome: "skipped"},
		{name: "retry", h: returning(consumer.RetryAfter(time.Second, errBase)), outcome: "retry",
			errType: "*errors.errorString"},
		{name: "not due", h: returning(consumer.NotBefore(time.Now().Add(time.Hour))), outcome: "not_due"},
		{name: "handed on", h: result(consumer.Result{HandedOn: errBase}), outcome: "handed_on",
			errType: "*errors.errorString"},
		{name: "permanent", h: returning(consumer.Permanent(errBase)), outcome: "permanent", errType: "*errors.errorString"},
		{name: "too old", h: tooOld, outcome: "permanent", errType: "too_old"},
		{name: "gave up", h: returning(&consumer.GaveUp{Attempts: 2, Err: errBase}), outcome: "gave_up",
			errType: "*errors.errorString"},
		{name: "failed", h: returning(dedupstore.ErrOutcomeUnknown), outcome: "failed", errType: "outcome_unknown"},
		{name: "interrupted", ctx: done, h: returning(context.Canceled), outcome: "interrupted", errType: "canceled"},
		{name: "panic", h: explode("s3cret"), outcome: "panic", errType: "panic"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := test.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			m := newMeasured(t)
			slow := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
				time.Sleep(time.Second)
				return test.h.Handle(ctx, msg)
			})
			msg := message()
			msg.Timestamp = time.Now().Add(-2 * time.Hour)
			handled(ctx, m.mw(slow), msg)
			attrs := "[einmal.outcome=" + test.outcome
			if test.errType != "" {
				attrs += " error.type=" + test.errType
			}
			want := []string{"einmal.attempts" + attrs + "] 1", "messaging.process.duration" + attrs + "] 1: 1"}
			if test.outcome == "success" {
				want = append(want, "einmal.effect.latency[] 1: 7201")
			}
			if test.errType == "too_old" { // it was looked for, and its record was not there
				want = append(want, "einmal.transactions[einmal.transaction.outcome=rolled_back] 1")
			}
			m.want(test.name, want...)
		})
	}
}

// The latency of an effect ends with its commit, whatever a link does after that.
func TestMetricsLatencyEndsWithTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeasured(t)
		slow := func(next consumer.Handler) consumer.Handler {
			return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
				err := next.Handle(ctx, msg)
				time.Sleep(time.Minute)
				return err
			})
		}
		msg := message()
		msg.Timestamp = time.Now().Add(-2 * time.Second)
		handled(t.Context(), compose(middleware.Dedup(&store{}, noop, nil), m.mw, slow), msg)
		m.want("latency", "einmal.attempts[einmal.outcome=success] 1", "einmal.effect.latency[] 1: 2",
			"einmal.transactions[einmal.transaction.outcome=committed] 1",
			"messaging.process.duration[einmal.outcome=success] 1: 60")
	})
}

func result(res consumer.Result) consumer.Handler {
	return consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error { msg.Result = res; return nil })
}

// The transactions of an attempt, those of the dead letter too.
func TestMetricsTransactions(t *testing.T) {
	t.Parallel()
	failing := func(err error) func(context.Context, *tx, *consumer.Message) error {
		return func(context.Context, *tx, *consumer.Message) error { return err }
	}
	unknown := func() error { return fmt.Errorf("connection lost: %w", dedupstore.ErrOutcomeUnknown) }
	for _, test := range []struct {
		name string
		h    func(m *measured) consumer.Handler
		want string
	}{
		{"committed", func(m *measured) consumer.Handler { return m.mw(middleware.Dedup(&store{}, noop, nil)) },
			"einmal.transactions[einmal.transaction.outcome=committed] 1"},
		{"rolled back", func(m *measured) consumer.Handler { return m.mw(middleware.Dedup(&store{}, failing(errBase), nil)) },
			"einmal.transactions[einmal.transaction.outcome=rolled_back] 1"},
		{"panic", func(m *measured) consumer.Handler {
			return m.mw(middleware.Recover()(middleware.Dedup(&store{},
				func(context.Context, *tx, *consumer.Message) error { panic("s3cret") }, nil)))
		}, "einmal.transactions[einmal.transaction.outcome=rolled_back] 1"},
		{"unknown", func(m *measured) consumer.Handler {
			return m.mw(middleware.Dedup(&store{onCommit: unknown}, noop, nil))
		}, "einmal.transactions[einmal.transaction.outcome=unknown] 1"},
		{"dead letter", func(m *measured) consumer.Handler {
			s := &store{}
			return compose(middleware.Dedup(s, failing(consumer.Permanent(errBase)), nil), m.mw,
				middleware.DeadLetter(s, &cemetery{}, nil))
		}, "einmal.dead_letters[einmal.dead_letter.kind=permanent] 1, einmal.transactions[einmal.transaction.outcome=committed] 1, einmal.transactions[einmal.transaction.outcome=rolled_back] 1"},
		{"sequence", func(m *measured) consumer.Handler {
			return m.mw(middleware.Sequence(
				middleware.Step{Name: "a", Handler: middleware.Dedup(&store{}, noop, nil)},
				middleware.Step{Name: "b", Handler: middleware.Dedup(&store{}, noop, nil)},
			))
		}, "einmal.transactions[einmal.transaction.outcome=committed] 2"},
	} {
		m := newMeasured(t)
		handled(t.Context(), test.h(m), message())
		var got []string
		for _, p := range m.points() {
			if strings.HasPrefix(p, "einmal.transactions") || strings.HasPrefix(p, "einmal.dead_letters") {
				got = append(got, p)
			}
		}
		if s := strings.Join(got, ", "); s != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, s, test.want)
		}
	}
}

type failure int

func (f failure) Error() string     { return "failure" }
func (f failure) ErrorType() string { return fmt.Sprintf("failure %d", int(f)) }

// What is rare has a series from the first message on.
func TestMetricsBeginWithZero(t *testing.T) {
	t.Parallel()
	m := newMeasured(t)
	m.zeros = true
	handled(t.Context(), m.mw(returning(nil)), message())
	zeros := 0
	for _, p := range m.points() {
		if strings.HasSuffix(p, " 0") {
			zeros++
		}
	}
	if want := 3 + len(deadletter.Kinds()); zeros != want {
		t.Errorf("%d series begin with 0, want %d: %v", zeros, want, m.points())
	}
}

// However many classes of errors there are, the number of time series is bounded.
func TestMetricsCardinality(t *testing.T) {
	t.Parallel()
	m := newMeasured(t)
	n := 0
	h := m.mw(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return failure(n) }))
	for n = range 1000 {
		handled(t.Context(), h, message())
	}
	n = 0
	handled(t.Context(), h, message()) // one that is known is told by its name all the same
	attempts, other, first := 0, "", ""
	for _, p := range m.points() {
		switch {
		case strings.HasPrefix(p, "einmal.attempts[einmal.outcome=failed error.type=_OTHER]"):
			other = p
		case strings.HasPrefix(p, "einmal.attempts[einmal.outcome=failed error.type=failure 0]"):
			first = p
		}
		if strings.HasPrefix(p, "einmal.attempts") {
			attempts++
		}
	}
	if attempts != 101 || !strings.HasSuffix(other, " 900") || !strings.HasSuffix(first, " 2") {
		t.Errorf("%d series, %q, %q: want 101, 900 of the other ones and 2 of the first", attempts, other, first)
	}
}

// noMeters is a MeterProvider whose instruments cannot be made.
type noMeters struct {
	otelnoop.MeterProvider
}

func (noMeters) Meter(string, ...metric.MeterOption) metric.Meter { return noMeter{} }

type noMeter struct{ otelnoop.Meter }

func (noMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return otelnoop.Int64Counter{}, errBase
}

func TestMetricsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	if err := check(t, middleware.Metrics(&middleware.MetricsConfig{MeterProvider: noMeters{}})(returning(nil))); !errors.Is(err, errBase) {
		t.Errorf("got %v", err)
	}
}

// A message that succeeds costs no allocation for its measurements; without the link a chain costs nothing at all.
func TestMetricsAllocations(t *testing.T) { //nolint:paralleltest // it counts allocations
	msg := message()
	msg.Timestamp = time.Now()
	succeed := consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		msg.Result.Transactions.Committed = 1
		return nil
	})
	sampledOut := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for _, test := range []struct {
		name string
		h    consumer.Handler
		most float64
	}{
		{"no middleware", compose(succeed), 0},
		{"no provider", compose(succeed, middleware.Metrics(nil)), 0},
		{"an SDK", compose(succeed, newMeasured(t).mw), 0},
		{"tracing that is sampled out",
			compose(succeed, middleware.Tracing(&middleware.TracingConfig{TracerProvider: sampledOut})), 10},
	} {
		if got := testing.AllocsPerRun(1000, func() { _ = test.h.Handle(t.Context(), msg) }); got > test.most {
			t.Errorf("%s: %v allocations a message, want at most %v", test.name, got, test.most)
		} else {
			t.Logf("%s: %v", test.name, got)
		}
	}
}
