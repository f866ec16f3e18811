package middleware_test

import (
	"fmt"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

func TestTracingManyPartitions(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	h := middleware.Tracing(&middleware.TracingConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))})(returning(nil))
	const workers, partitions = 4, 100
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for p := range int32(partitions) {
				msg := message()
				msg.Partition, msg.Offset = p, int64(p)
				msg.Headers = []consumer.Header{{Key: "traceparent", Value: []byte(traceparent)}}
				handled(t.Context(), h, msg)
			}
		}()
	}
	for range workers {
		<-done
	}
	for _, span := range exporter.GetSpans() {
		attrs := attributes(span)
		if attrs["messaging.destination.partition.id"] != fmt.Sprint(attrs["messaging.kafka.offset"]) ||
			len(span.Links) != 1 {
			t.Errorf("mixed up: %v, %d links", attrs, len(span.Links))
		}
	}
	if n := len(exporter.GetSpans()); n != workers*partitions {
		t.Errorf("%d spans", n)
	}
}
