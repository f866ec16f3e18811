package main

import (
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The ends of the chain that are HTTP: a span for each request that is served, and one for each that is sent, with the
// W3C trace context between them. Between the services, the outbox and middleware.Tracing hand it on.

const tracerName = "github.com/einmal-go/einmal/examples/billing"

func tracer() trace.Tracer { return otel.Tracer(tracerName) }

// traced makes a span of each request that next serves.
func traced(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer().Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
		defer span.End()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r.WithContext(ctx))
		describe(span, seen.status, http.StatusInternalServerError)
	})
}

// tracedTransport makes a span of each request that it sends. Inside of idempotency.Transport that is one for each
// attempt.
type tracedTransport struct{ base http.RoundTripper }

func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := tracer().Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname())))
	defer span.End()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	describe(span, answer.StatusCode, http.StatusBadRequest)
	return answer, nil
}

// describe notes the answer; from failed on it is an error of this side.
func describe(span trace.Span, status, failed int) {
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= failed {
		span.SetStatus(codes.Error, "")
	}
}

type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
