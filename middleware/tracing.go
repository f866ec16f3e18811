package middleware

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/redact"
)

// TracingConfig is what can be chosen about Tracing. Nil means all defaults.
type TracingConfig struct {
	// TracerProvider makes the spans. Defaults to otel.GetTracerProvider(), which may be set later.
	TracerProvider trace.TracerProvider

	// Propagator reads the producer's span from the record's headers, whose names are case-sensitive. Defaults to W3C
	// Trace Context, the headers traceparent and tracestate. It does not read baggage: that would be input from outside,
	// which the handler's own calls hand on to others. To have it, add propagation.Baggage{} with
	// propagation.NewCompositeTextMapPropagator. Headers of more than 8,192 bytes count as absent.
	Propagator propagation.TextMapPropagator

	// Parent makes the producer's span the parent of the process span, so that both are in one trace; with the usual
	// sampler the producer's decision then holds for the consumer, too. Defaults to a link between two traces, as
	// OpenTelemetry's conventions do: one event may have many consumers, redeliveries and attempts, and may be replayed
	// weeks later, when the producer's trace has long been closed.
	Parent bool

	// EventID adds the event's id to the span, as messaging.message.id, cut to 128 bytes. Off by default, for the reason
	// given at LoggingConfig.EventID.
	EventID bool

	// ErrorText makes the description of a failed span's status from the error, which is cut to 256 bytes, without what
	// looks like a secret. Defaults to the outcome's name: the text of an error may contain parts of a message, and
	// error.type names its class.
	ErrorText func(error) string
}

const (
	tracerName         = "github.com/einmal-go/einmal/middleware"
	maxStatus          = 256
	spanRecord         = "record"
	spanHandler        = "handler"
	spanCommit         = "commit"
	spanRollback       = "rollback"
	maxCachedStarts    = 10_000 // partitions of one topic
	attributesAtTheEnd = 10
)

// Tracing returns a middleware that makes one span of kind CONSUMER for each attempt, named "process" and the topic, in
// whose context the inner links run. It is linked to the span that produced the record, or its child: see
// TracingConfig.Parent. A span that the context already carries is linked, never the parent: the one of Run's caller
// would collect all messages in one trace. A traceparent that is broken counts as none.
//
// Attributes say where the message stood, which attempt it was, and what became of it (einmal.outcome,
// einmal.duplicate); the status is an error unless the message took effect, was a duplicate, or was interrupted by a
// drain. Where Dedup stands inside, its clock gives child spans: record, handler, and commit or rollback. Keys, values
// and headers never become attributes.
func Tracing(cfg *TracingConfig) consumer.Middleware {
	t := tracing{}
	if cfg != nil {
		t.cfg = *cfg
	}
	if t.cfg.TracerProvider == nil {
		t.cfg.TracerProvider = otel.GetTracerProvider()
	}
	if t.cfg.Propagator == nil {
		t.cfg.Propagator = propagation.TraceContext{}
	}
	tracer := t.cfg.TracerProvider.Tracer(tracerName, trace.WithSchemaURL(names.SchemaURL))
	return func(next consumer.Handler) consumer.Handler {
		return &tracing{next: next, cfg: t.cfg, tracer: tracer, starts: starts{known: map[startKey]start{}}}
	}
}

type tracing struct {
	next   consumer.Handler
	cfg    TracingConfig
	tracer trace.Tracer
	starts starts
}

// Unwrap implements consumer.Wrapper.
func (t *tracing) Unwrap() consumer.Handler { return t.next }

// Link implements consumer.Linker.
func (t *tracing) Link() consumer.Link { return consumer.LinkTracing }

// Handle implements consumer.Handler.
func (t *tracing) Handle(ctx context.Context, msg *consumer.Message) error {
	inner, span := t.start(ctx, msg)
	// Not span.End itself: called by a panic, it would write the panic's value into the span.
	return observe(inner, msg, t.next, func(what outcome, err error, panicked bool) {
		if span.IsRecording() {
			t.describe(span, msg, what, cmp.Or(err, msg.Result.DeadErr, msg.Result.HandedOn))
			t.children(inner, msg, !panicked && !rolledBack(err))
		}
		span.End()
	})
}

// start begins the process span.
func (t *tracing) start(ctx context.Context, msg *consumer.Message) (context.Context, trace.Span) {
	s := t.starts.of(msg)
	ambient := trace.SpanContextFromContext(ctx)
	ctx = t.cfg.Propagator.Extract(ctx, carrier{msg})
	producer := trace.SpanContextFromContext(ctx)
	if producer.Equal(ambient) { // none, then: Extract leaves the context as it was
		producer = trace.SpanContext{}
	}
	opts := s.root
	if t.cfg.Parent && producer.IsValid() {
		opts = s.child
		producer = trace.SpanContext{}
	}
	if links := links(producer, ambient); links != nil {
		opts = append(opts, trace.WithLinks(links...)) // opts has no room: it is copied
	}
	return t.tracer.Start(ctx, s.name, opts...) //nolint:spancheck // Handle ends it
}

func links(spans ...trace.SpanContext) (links []trace.Link) {
	for _, sc := range spans {
		if sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	return links
}

// describe says what became of the attempt.
func (t *tracing) describe(span trace.Span, msg *consumer.Message, what outcome, err error) {
	attrs := append(make([]attribute.KeyValue, 0, attributesAtTheEnd),
		names.Offset.Int64(msg.Offset),
		names.BodySize.Int(len(msg.Value)),
		names.Consumer.String(msg.Consumer),
		names.Attempt.Int(msg.Attempt),
		names.Duplicate.Bool(msg.Result.Duplicate),
		names.Outcome.String(string(what)),
	)
	if msg.Value == nil {
		attrs = append(attrs, names.Tombstone.Bool(true))
	}
	if t.cfg.EventID && msg.EventID != "" {
		attrs = append(attrs, names.MessageID.String(redact.Text(msg.EventID, maxEventID)))
	}
	switch {
	case err != nil && what != outcomeNotDue:
		attrs = append(attrs, names.ErrorType.String(errtype.Of(err)))
	case what.isError():
		attrs = append(attrs, names.ErrorType.String(string(what)))
	}
	if what.isError() {
		span.SetStatus(codes.Error, t.status(what, err))
	}
	span.SetAttributes(attrs...)
}

func (t *tracing) status(what outcome, err error) string {
	if t.cfg.ErrorText == nil || err == nil {
		return string(what)
	}
	return redact.Text(t.cfg.ErrorText(err), maxStatus)
}

// children makes spans of the steps of the transaction, from the times that Dedup has taken.
func (t *tracing) children(ctx context.Context, msg *consumer.Message, committed bool) {
	res := &msg.Result
	if res.Begin.IsZero() {
		return
	}
	if res.HandlerStart.IsZero() {
		t.child(ctx, spanRecord, res.Begin, res.End)
		return
	}
	t.child(ctx, spanRecord, res.Begin, res.HandlerStart)
	t.child(ctx, spanHandler, res.HandlerStart, res.HandlerEnd)
	last := spanRollback
	if committed {
		last = spanCommit
	}
	t.child(ctx, last, res.HandlerEnd, res.End)
}

// rolledBack reports whether an attempt that returned err has not tried to commit, as far as the error tells.
func rolledBack(err error) bool { return err != nil && !errors.Is(err, dedupstore.ErrOutcomeUnknown) }

func (t *tracing) child(ctx context.Context, name string, from, to time.Time) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
	span.End(trace.WithTimestamp(to))
}

// starts keeps the name and the options of the spans of each partition: they are the same for every message, and are
// needed even if no span is recorded, for the sampler.
type starts struct {
	mu    sync.RWMutex
	known map[startKey]start
}

type startKey struct {
	topic, group string
	partition    int32
}

type start struct {
	name        string
	root, child []trace.SpanStartOption // both without room to append to
}

func (s *starts) of(msg *consumer.Message) start {
	key := startKey{msg.Topic, msg.Group, msg.Partition}
	s.mu.RLock()
	st, ok := s.known[key]
	s.mu.RUnlock()
	if ok {
		return st
	}
	st = newStart(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxCachedStarts {
		clear(s.known)
	}
	s.known[key] = st
	return st
}

func newStart(key startKey) start {
	attrs := trace.WithAttributes(
		names.Kafka, names.TypeProcess,
		names.OperationName.String(names.Process),
		names.Topic.String(key.topic),
		names.Partition.String(strconv.Itoa(int(key.partition))),
		names.Group.String(key.group),
	)
	kind := trace.WithSpanKind(trace.SpanKindConsumer)
	return start{
		name:  names.Process + " " + key.topic,
		root:  []trace.SpanStartOption{kind, attrs, trace.WithNewRoot()},
		child: []trace.SpanStartOption{kind, attrs},
	}
}

// carrier lets a propagator read a message's headers.
type carrier struct{ msg *consumer.Message }

// maxHeader is the longest header that is read, in bytes: what W3C lets the longest of its headers, baggage, have.
const maxHeader = 8192

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	value, _ := c.msg.Header(key)
	if len(value) > maxHeader {
		return ""
	}
	return string(value)
}

// Set implements propagation.TextMapCarrier. Nothing is written to a message that is consumed.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, len(c.msg.Headers))
	for i, h := range c.msg.Headers {
		keys[i] = h.Key
	}
	return keys
}
