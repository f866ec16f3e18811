package relay

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/outbox"
)

const tracerName = "github.com/einmal-go/einmal/outbox/relay"

// maxLinks is how many links the SDK keeps by default.
const maxLinks = 128

// startSpans begins a span for each topic of the batch. It is linked to the traces in which the events were written:
// they are many, so none is the parent.
func (b *batch) startSpans(ctx context.Context) (end func(error)) {
	tracer := b.worker.cfg.TracerProvider.Tracer(tracerName, trace.WithSchemaURL(names.SchemaURL))
	byTopic := map[string][]*row{}
	for _, r := range b.rows {
		byTopic[r.topic] = append(byTopic[r.topic], r)
	}
	var spans []trace.Span
	for topic, rows := range byTopic {
		attributes := trace.WithAttributes(names.Kafka, names.TypeSend, names.OperationName.String(names.Send),
			names.Topic.String(topic), names.BatchSize.Int(len(rows)))
		_, span := tracer.Start(ctx, names.Send+" "+topic,
			trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), attributes)
		if span.IsRecording() {
			addLinks(span, rows)
		}
		spans = append(spans, span)
	}
	return func(err error) {
		for _, span := range spans {
			if err != nil {
				span.SetStatus(codes.Error, "not all were sent")
			}
			span.End()
		}
	}
}

// writtenIn returns the trace context that stands in the headers.
func writtenIn(headers []outbox.Header) trace.SpanContext {
	carrier := propagation.MapCarrier{}
	for _, name := range (propagation.TraceContext{}).Fields() {
		i := slices.IndexFunc(headers, func(h outbox.Header) bool { return h.Key == name })
		if i >= 0 {
			carrier[name] = string(headers[i].Value)
		}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

func addLinks(span trace.Span, rows []*row) {
	seen := map[trace.SpanID]bool{}
	for _, r := range rows {
		sc := writtenIn(r.headers)
		if !sc.IsValid() || seen[sc.SpanID()] {
			continue
		}
		if seen[sc.SpanID()] = true; len(seen) > maxLinks {
			return
		}
		span.AddLink(trace.Link{SpanContext: sc})
	}
}
