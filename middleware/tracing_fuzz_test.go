package middleware_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/fuzztest"
	"github.com/einmal-go/einmal/middleware"
)

// FuzzTracingHeaders: whatever stands in the headers, the handler runs once, and only a valid context is taken over.
func FuzzTracingHeaders(f *testing.F) {
	f.Add([]byte(traceparent), []byte("vendor=1"), true)
	f.Add([]byte("00-xyz"), []byte(nil), false)
	f.Add([]byte("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-more"), []byte("a=1,a=2"), true)
	f.Add([]byte("\x00"), []byte("\xff=\x00"), false)
	f.Fuzz(func(t *testing.T, parent, state []byte, asParent bool) {
		msg := message()
		msg.Headers = []consumer.Header{{Key: "tracestate", Value: state}, {Key: "traceparent", Value: parent}}
		calls := 0
		var span tracetest.SpanStub
		fuzztest.Bounded(t, len(parent)+len(state), 4<<20, func() {
			span = process(t, middleware.TracingConfig{Parent: asParent},
				consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
					calls++
					return nil
				}), msg)
		})
		if calls != 1 || !span.SpanContext.IsValid() {
			t.Errorf("%d calls, span %v", calls, span.SpanContext)
		}
		for _, l := range span.Links {
			if !l.SpanContext.IsValid() {
				t.Errorf("linked to %+v", l.SpanContext)
			}
		}
	})
}
