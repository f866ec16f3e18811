package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// telemetry measures and traces: metrics are read by Prometheus at /metrics, spans are sent to a collector by OTLP.
type telemetry struct {
	meters  *sdkmetric.MeterProvider
	tracers *sdktrace.TracerProvider
	metrics http.Handler
}

// openTelemetry makes the providers. Without cfg.traces no span is made. The exporter and the SDK read the other
// variables of OpenTelemetry by themselves: OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and so
// on.
func openTelemetry(ctx context.Context, log *slog.Logger, cfg config) (*telemetry, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry", slog.Any("error", err)) }))
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "orders-service")),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // what stands last counts
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	tracing := []sdktrace.TracerProviderOption{sdktrace.WithResource(who)}
	if cfg.traces == "" {
		tracing = append(tracing, sdktrace.WithSampler(sdktrace.NeverSample()))
	} else {
		url := strings.TrimRight(cfg.traces, "/") + "/v1/traces"
		exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
		if err != nil {
			return nil, err
		}
		tracing = append(tracing, sdktrace.WithBatcher(exporter))
	}
	return &telemetry{
		meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(who)),
		tracers: sdktrace.NewTracerProvider(tracing...),
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}, nil
}

// route makes a span and metrics of each request, in the trace of the client if it sends one.
func (t *telemetry) route(name string, h http.Handler) http.Handler {
	return otelhttp.NewHandler(h, name, otelhttp.WithTracerProvider(t.tracers), otelhttp.WithMeterProvider(t.meters),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}

// close exports the last spans, within flushTime.
func (t *telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx))
}
