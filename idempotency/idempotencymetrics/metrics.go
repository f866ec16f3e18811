// Package idempotencymetrics counts the requests of an idempotency.Handler, by what became of them. docs/metrics.md
// lists the instrument.
//
//	count, err := idempotencymetrics.OnAnswer(nil) // with OpenTelemetry's global MeterProvider
//	...
//	orders, err := idempotency.NewHandler(store, placeOrder,
//		idempotency.HandlerConfig{Principal: tenant, OnAnswer: count})
package idempotencymetrics

import (
	"net/http"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/internal/meter"
	"github.com/einmal-go/einmal/internal/names"
)

// Config is what can be chosen about OnAnswer. Nil means all defaults.
type Config struct {
	// MeterProvider makes the instrument. Defaults to otel.GetMeterProvider(), which may be set later.
	MeterProvider metric.MeterProvider
}

const scope = "github.com/einmal-go/einmal/idempotency/idempotencymetrics"

// OnAnswer returns a function for idempotency.HandlerConfig.OnAnswer, of one Handler or of several. Its attributes are
// the method, the route (the path of the pattern under which an http.ServeMux has found the Handler; without one there
// is none), and the outcome. Neither keys nor principals are among them.
func OnAnswer(cfg *Config) (func(r *http.Request, outcome idempotency.Outcome), error) {
	if cfg == nil {
		cfg = &Config{}
	}
	m := meter.New(cfg.MeterProvider, scope)
	c := &counter{requests: m.Counter(names.IdempotencyRequests)}
	return c.add, m.Err()
}

type counter struct {
	requests metric.Int64Counter
	known    sync.Map // of operation
}

// operation is what requests differ in, beside their outcome.
type operation struct{ method, route string }

func (c *counter) add(r *http.Request, outcome idempotency.Outcome) {
	op := operation{methodOf(r.Method), routeOf(r.Pattern)}
	if _, known := c.known.LoadOrStore(op, true); !known {
		for _, o := range idempotency.Outcomes() { // of a series that begins with 1, Prometheus does not see that it has grown
			c.requests.Add(r.Context(), 0, op.with(o))
		}
	}
	c.requests.Add(r.Context(), 1, op.with(outcome))
}

func (op operation) with(outcome idempotency.Outcome) metric.MeasurementOption {
	attrs := []attribute.KeyValue{names.HTTPMethod.String(op.method), names.IdempotencyOutcome.String(string(outcome))}
	if op.route != "" {
		attrs = append(attrs, names.HTTPRoute.String(op.route))
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

// methodOf keeps what clients make up out of the attributes.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return names.HTTPMethodOther.Value.AsString()
}

// routeOf is a pattern without its method and host.
func routeOf(pattern string) string {
	if at := strings.IndexByte(pattern, '/'); at >= 0 {
		return pattern[at:]
	}
	return ""
}
