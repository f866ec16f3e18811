package middleware_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

const (
	producerTrace = "0af7651916cd43dd8448eb211c80319c"
	producerSpan  = "b7ad6b7169203331"
	traceparent   = "00-" + producerTrace + "-" + producerSpan + "-01"
)

// traced runs h inside Tracing and returns the spans, the process span last.
func traced(t *testing.T, ctx context.Context, cfg middleware.TracingConfig, h consumer.Handler, msg *consumer.Message) tracetest.SpanStubs { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithSampler(sdktrace.AlwaysSample()))
	handled(ctx, middleware.Tracing(&cfg)(h), msg)
	return exporter.GetSpans()
}

// process runs h inside Tracing and returns the process span, which is the only one without Dedup.
func process(t *testing.T, cfg middleware.TracingConfig, h consumer.Handler, msg *consumer.Message) tracetest.SpanStub {
	t.Helper()
	spans := traced(t, t.Context(), cfg, h, msg)
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	return spans[0]
}

func attributes(span tracetest.SpanStub) map[attribute.Key]any {
	m := map[attribute.Key]any{}
	for _, kv := range span.Attributes {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m
}

func TestTracingSpan(t *testing.T) {
	t.Parallel()
	msg := message()
	msg.Attempt = 2
	span := process(t, middleware.TracingConfig{}, returning(nil), msg)
	if span.Name != "process orders" || span.SpanKind != trace.SpanKindConsumer || span.Parent.IsValid() ||
		len(span.Links) != 0 {
		t.Errorf("name %q, kind %v, parent %v, links %v", span.Name, span.SpanKind, span.Parent, span.Links)
	}
	if span.Status.Code != codes.Unset || !strings.HasPrefix(span.InstrumentationScope.SchemaURL,
		"https://opentelemetry.io/schemas/") {
		t.Errorf("status %v, scope %+v", span.Status, span.InstrumentationScope)
	}
	want := map[attribute.Key]any{
		"messaging.system":                   "kafka",
		"messaging.operation.type":           "process",
		"messaging.operation.name":           "process",
		"messaging.destination.name":         "orders",
		"messaging.destination.partition.id": "3",
		"messaging.consumer.group.name":      "billing",
		"messaging.kafka.offset":             int64(42),
		"messaging.message.body.size":        int64(len(msg.Value)),
		"einmal.consumer":                    "billing/orders",
		"einmal.attempt":                     int64(2),
		"einmal.duplicate":                   false,
		"einmal.outcome":                     "success",
	}
	if got := attributes(span); !maps.Equal(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

func TestTracingTombstoneAndEventID(t *testing.T) {
	t.Parallel()
	msg := message()
	msg.Value, msg.EventID = nil, strings.Repeat("ä", 1000)+"\xff"
	got := attributes(process(t, middleware.TracingConfig{EventID: true}, returning(nil), msg))
	if got["messaging.kafka.message.tombstone"] != true || got["messaging.message.body.size"] != int64(0) {
		t.Errorf("got %v", got)
	}
	if id := got["messaging.message.id"]; id != strings.Repeat("ä", 64) {
		t.Errorf("id %q, want it cut to 128 bytes", id)
	}
}

// Where the record's trace context goes, by choice and by what the context carries already.
func TestTracingRelation(t *testing.T) {
	t.Parallel()
	ambient := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	for _, test := range []struct {
		name    string
		headers []consumer.Header
		parent  bool
		ambient bool
		want    string // parent | links, as span ids
	}{
		{"no headers", nil, false, false, "root |"},
		{"no headers, parent wanted", nil, true, false, "root |"},
		{"link", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}, false, false, "root | " + producerSpan},
		{"parent", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}, true, false, producerSpan + " |"},
		{"link, inside another span", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}, false, true,
			"root | " + producerSpan + " " + ambient.SpanID().String()},
		{"parent, inside another span", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}, true, true,
			producerSpan + " | " + ambient.SpanID().String()},
		{"no headers, inside another span", nil, false, true, "root | " + ambient.SpanID().String()},
		{"no headers, parent wanted, inside another span", nil, true, true, "root | " + ambient.SpanID().String()},
		{"repeated header", []consumer.Header{{Key: "traceparent",
			Value: []byte("00-0af7651916cd43dd8448eb211c80319c-1111111111111111-01")},
			{Key: "traceparent", Value: []byte(traceparent)}}, true, false, producerSpan + " |"},
		{"empty", []consumer.Header{{Key: "traceparent"}}, true, false, "root |"},
		{"broken", []consumer.Header{{Key: "traceparent", Value: []byte("00-xyz")}}, true, false, "root |"},
		{"broken, inside another span", []consumer.Header{{Key: "traceparent", Value: []byte("\x00\xff")}}, true, true,
			"root | " + ambient.SpanID().String()},
		{"all zero", []consumer.Header{{Key: "traceparent",
			Value: []byte("00-00000000000000000000000000000000-0000000000000000-01")}}, false, false, "root |"},
		{"huge", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent + strings.Repeat("-", 1<<20))}}, false,
			false, "root |"},
		{"other case", []consumer.Header{{Key: "Traceparent", Value: []byte(traceparent)}}, false, false, "root |"},
		{"broken tracestate", []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)},
			{Key: "tracestate", Value: []byte("\x00=,,")}}, true, false, producerSpan + " |"},
		{"nil keys", append(make([]consumer.Header, 3), consumer.Header{Key: "traceparent", Value: []byte(traceparent)}),
			true, false, producerSpan + " |"},
		{"10,000 headers", append(many(10_000), consumer.Header{Key: "traceparent", Value: []byte(traceparent)}), true, false,
			producerSpan + " |"},
	} {
		ctx := t.Context()
		if test.ambient {
			ctx = trace.ContextWithSpanContext(ctx, ambient)
		}
		msg := message()
		msg.Headers = test.headers
		span := traced(t, ctx, middleware.TracingConfig{Parent: test.parent}, returning(nil), msg)[0]
		got := "root |"
		if span.Parent.IsValid() {
			got = span.Parent.SpanID().String() + " |"
			if span.SpanContext.TraceID().String() != producerTrace || !span.Parent.IsRemote() {
				t.Errorf("%s: not in the producer's trace", test.name)
			}
		}
		for _, l := range span.Links {
			got += " " + l.SpanContext.SpanID().String()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func many(n int) (headers []consumer.Header) {
	for i := range n {
		headers = append(headers, consumer.Header{Key: fmt.Sprint("h", i), Value: []byte("s3cret")})
	}
	return headers
}

// With the SDK's default sampler, a child follows its parent's decision; a link does not.
func TestTracingSamplingByRelation(t *testing.T) {
	t.Parallel()
	for parent, want := range map[bool]int{true: 0, false: 1} {
		exporter := tracetest.NewInMemoryExporter()
		h := middleware.Tracing(&middleware.TracingConfig{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), Parent: parent,
		})(returning(nil))
		msg := message()
		msg.Headers = []consumer.Header{{Key: "traceparent", Value: []byte("00-" + producerTrace + "-" + producerSpan +
			"-00")}}
		handled(t.Context(), h, msg)
		if n := len(exporter.GetSpans()); n != want {
			t.Errorf("parent %v: %d spans of a producer that was not sampled, want %d", parent, n, want)
		}
	}
}

func TestTracingTracestateTravels(t *testing.T) {
	t.Parallel()
	msg := message()
	msg.Headers = []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)},
		{Key: "tracestate", Value: []byte("vendor=1")}}
	span := process(t, middleware.TracingConfig{}, returning(nil), msg)
	if got := span.Links[0].SpanContext.TraceState().String(); got != "vendor=1" {
		t.Errorf("tracestate %q", got)
	}
}

func TestTracingHandlersContextCarriesTheSpan(t *testing.T) {
	t.Parallel()
	for _, parent := range []bool{false, true} {
		msg := message()
		msg.Headers = []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)},
			{Key: "baggage", Value: []byte("tenant=s3cret")}}
		var inside trace.SpanContext
		var bag baggage.Baggage
		h := consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
			inside, bag = trace.SpanContextFromContext(ctx), baggage.FromContext(ctx)
			return nil
		})
		if span := process(t, middleware.TracingConfig{Parent: parent}, h, msg); !inside.Equal(span.SpanContext) {
			t.Errorf("parent %v: the handler sees span %v, not %v", parent, inside.SpanID(), span.SpanContext.SpanID())
		}
		if bag.Len() != 0 {
			t.Errorf("parent %v: baggage %v, without having been asked for", parent, bag)
		}
		both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		span := process(t, middleware.TracingConfig{Parent: parent, Propagator: both}, h, msg)
		if bag.Member("tenant").Value() != "s3cret" || !inside.Equal(span.SpanContext) || span.Parent.IsValid() != parent {
			t.Errorf("parent %v, with baggage: %v, parent %v", parent, bag, span.Parent)
		}
	}
}

func TestTracingOutcomes(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	secret := fmt.Errorf("order s3cret: %w", errBase)
	result := func(res consumer.Result) consumer.Handler {
		return consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error { msg.Result = res; return nil })
	}
	for _, test := range []struct {
		name    string
		ctx     context.Context
		h       consumer.Handler
		outcome string
		failed  bool
		errType any
	}{
		{name: "success", h: returning(nil), outcome: "success"},
		{name: "duplicate", h: result(consumer.Result{Duplicate: true}), outcome: "duplicate"},
		{name: "dead letter", h: result(consumer.Result{Dead: true}), outcome: "dead_letter", failed: true,
			errType: "dead_letter"},
		{name: "retry", h: returning(consumer.RetryAfter(time.Second, secret)), outcome: "retry", failed: true,
			errType: "*errors.errorString"},
		{name: "gave up", h: returning(&consumer.GaveUp{Attempts: 3, Err: secret}), outcome: "gave_up", failed: true,
			errType: "*errors.errorString"},
		{name: "permanent", h: returning(consumer.Permanent(secret)), outcome: "permanent", failed: true,
			errType: "*errors.errorString"},
		{name: "failed", h: returning(secret), outcome: "failed", failed: true, errType: "*errors.errorString"},
		{name: "interrupted", ctx: done, h: returning(context.Canceled), outcome: "interrupted", errType: "canceled"},
		{name: "recovered panic", h: middleware.Recover()(explode("s3cret")), outcome: "failed", failed: true,
			errType: "panic"},
		{name: "panic", h: explode("s3cret"), outcome: "panic", failed: true, errType: "panic"},
	} {
		if test.ctx == nil {
			test.ctx = t.Context()
		}
		span := traced(t, test.ctx, middleware.TracingConfig{}, test.h, message())[0]
		attrs := attributes(span)
		if attrs["einmal.outcome"] != test.outcome || attrs["error.type"] != test.errType ||
			attrs["einmal.duplicate"] != (test.outcome == "duplicate") {
			t.Errorf("%s: %v", test.name, attrs)
		}
		if (span.Status.Code == codes.Error) != test.failed || test.failed && span.Status.Description != test.outcome {
			t.Errorf("%s: status %v", test.name, span.Status)
		}
		if strings.Contains(fmt.Sprintf("%+v", span), "s3cret") {
			t.Errorf("%s: a text that may hold parts of a message is in the span: %+v", test.name, span)
		}
	}
}

func TestTracingErrorTextIsAChoice(t *testing.T) {
	t.Parallel()
	long := fmt.Errorf("%s: %w", strings.Repeat("ä", 1000), errBase)
	span := process(t, middleware.TracingConfig{ErrorText: error.Error}, returning(long), message())
	if got := span.Status.Description; got != strings.Repeat("ä", 128) {
		t.Errorf("description %q, want it cut to 256 bytes", got)
	}
}

// lengths is a propagator that sees how long the headers are.
type lengths struct {
	propagation.TraceContext
	seen map[string]int
}

func (l lengths) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	for _, key := range c.Keys() {
		l.seen[key] = len(c.Get(key))
	}
	c.Set("traceparent", "changed") // nothing of a message changes
	return l.TraceContext.Extract(ctx, c)
}

func TestTracingHeaders(t *testing.T) {
	t.Parallel()
	msg := message()
	msg.Headers = []consumer.Header{
		{Key: "traceparent", Value: []byte(traceparent)}, {}, {Key: "longest", Value: make([]byte, 8192)},
		{Key: "too long", Value: make([]byte, 8193)},
	}
	seen := map[string]int{}
	span := process(t, middleware.TracingConfig{Propagator: lengths{seen: seen}}, returning(nil), msg)
	if want := map[string]int{"traceparent": 55, "": 0, "longest": 8192, "too long": 0}; !maps.Equal(seen, want) {
		t.Errorf("the propagator saw %v, want %v", seen, want)
	}
	if len(span.Links) != 1 || len(msg.Headers) != 4 {
		t.Errorf("%d links, %d headers", len(span.Links), len(msg.Headers))
	}
}

// The steps of Dedup, by its clock.
func TestTracingChildren(t *testing.T) {
	t.Parallel()
	wait := func(err error) func() error {
		return func() error { time.Sleep(time.Second); return err }
	}
	handler := func(f func() error) func(context.Context, *tx, *consumer.Message) error {
		return func(context.Context, *tx, *consumer.Message) error { time.Sleep(2 * time.Second); return f() }
	}
	success := func() error { return nil }
	duplicate := &store{}
	if _, err := duplicate.Once(t.Context(), dedupstore.Key{Consumer: "billing/orders", Event: "e1"},
		func(context.Context, *tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	duplicate.onRecord = wait(nil)
	for _, test := range []struct {
		name    string
		store   *store
		handler func() error
		want    string // name from-to, in seconds
	}{
		{"success", &store{onRecord: wait(nil), onCommit: wait(nil)}, success,
			"record 0-1, handler 1-3, commit 3-4, process orders 0-4"},
		{"error", &store{onRecord: wait(nil), onCommit: wait(nil)}, func() error { return errBase },
			"record 0-1, handler 1-3, rollback 3-3, process orders 0-3"},
		{"panic", &store{onRecord: wait(nil), onCommit: wait(nil)}, func() error { panic("s3cret") },
			"record 0-1, handler 1-3, rollback 3-3, process orders 0-3"},
		{"unknown outcome", &store{onRecord: wait(nil), onCommit: wait(dedupstore.ErrOutcomeUnknown)}, success,
			"record 0-1, handler 1-3, commit 3-4, process orders 0-4"},
		{"record fails", &store{onRecord: wait(errBase)}, success, "record 0-1, process orders 0-1"},
		{"duplicate", duplicate, success, "record 0-1, process orders 0-1"},
		{"refused", &store{onRecord: wait(nil)}, nil, "process orders 0-0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			msg := message()
			if test.handler == nil {
				msg.EventID = ""
			}
			start := time.Now()
			spans := traced(t, t.Context(), middleware.TracingConfig{}, middleware.Dedup(test.store, handler(test.handler), nil),
				msg)
			parent := spans[len(spans)-1]
			var got []string
			for i, span := range spans {
				got = append(got, fmt.Sprintf("%s %v-%v", span.Name, span.StartTime.Sub(start).Seconds(),
					span.EndTime.Sub(start).Seconds()))
				if i < len(spans)-1 && (span.Parent.SpanID() != parent.SpanContext.SpanID() ||
					span.SpanKind != trace.SpanKindInternal) {
					t.Errorf("%s: %s is no internal child of the process span", test.name, span.Name)
				}
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("%s:\n got %s\nwant %s", test.name, s, test.want)
			}
		})
	}
}

// samplerProbe sees what a sampler sees.
type samplerProbe struct {
	asked int
	keys  []attribute.Key
	drop  bool
}

func (s *samplerProbe) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.asked++
	for _, kv := range p.Attributes {
		s.keys = append(s.keys, kv.Key)
	}
	return sdktrace.SamplingResult{Decision: map[bool]sdktrace.SamplingDecision{true: sdktrace.Drop,
		false: sdktrace.RecordAndSample}[s.drop]}
}

func (s *samplerProbe) Description() string { return "probe" }

func TestTracingSamplerSeesWhereTheMessageStood(t *testing.T) {
	t.Parallel()
	sampler := &samplerProbe{}
	h := middleware.Tracing(&middleware.TracingConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))})(returning(nil))
	handled(t.Context(), h, message())
	for _, key := range []attribute.Key{"messaging.system", "messaging.operation.type", "messaging.destination.name",
		"messaging.destination.partition.id", "messaging.consumer.group.name"} {
		if !slices.Contains(sampler.keys, key) {
			t.Errorf("the sampler did not see %s", key)
		}
	}
}

func TestTracingDroppedSpansHaveNoChildren(t *testing.T) {
	t.Parallel()
	exporter, sampler := tracetest.NewInMemoryExporter(), &samplerProbe{drop: true}
	h := middleware.Tracing(&middleware.TracingConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSyncer(exporter))})(
		middleware.Dedup(&store{}, noop, nil))
	handled(t.Context(), h, message())
	if n := len(exporter.GetSpans()); n != 0 || sampler.asked != 1 {
		t.Errorf("%d spans exported, the sampler was asked about %d, want none and 1", n, sampler.asked)
	}
}

func TestTracingPassesErrorsUnchanged(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errBase, consumer.Permanent(errBase)} {
		if err := middleware.Tracing(nil)(returning(want)).Handle(t.Context(), message()); err != want { //nolint:errorlint // as it is
			t.Errorf("got %v, want %v as it is", err, want)
		}
	}
}
