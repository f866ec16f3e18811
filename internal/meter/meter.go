// Package meter makes the instruments of package names, for those parts of einmal that measure.
package meter

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/internal/names"
)

// Maker makes the instruments of one scope, and gathers the errors. It is used by one goroutine.
type Maker struct {
	meter      metric.Meter
	observable []metric.Observable
	errs       []error
}

// New returns a Maker. The scope is the path of a package. A nil provider stands for the global one, which may be set
// later.
func New(provider metric.MeterProvider, scope string) *Maker {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return &Maker{meter: provider.Meter(scope, metric.WithSchemaURL(names.SchemaURL))}
}

// Err returns all errors so far.
func (m *Maker) Err() error { return errors.Join(m.errs...) }

// Counter makes a counter.
func (m *Maker) Counter(in names.Instrument) metric.Int64Counter {
	c, err := m.meter.Int64Counter(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description))
	m.errs = append(m.errs, err)
	return c
}

// Histogram makes a histogram with these boundaries.
func (m *Maker) Histogram(in names.Instrument, bounds ...float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.errs = append(m.errs, err)
	return h
}

// ObservedCounter makes a counter of which Observe's callback tells the sum.
func (m *Maker) ObservedCounter(in names.Instrument) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description))
	return observed(m, c, err)
}

// ObservedSeconds makes a counter of a time.
func (m *Maker) ObservedSeconds(in names.Instrument) metric.Float64ObservableCounter {
	c, err := m.meter.Float64ObservableCounter(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description))
	return observed(m, c, err)
}

// Gauge makes a gauge of a number.
func (m *Maker) Gauge(in names.Instrument) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description))
	return observed(m, g, err)
}

// GaugeSeconds makes a gauge of a time.
func (m *Maker) GaugeSeconds(in names.Instrument) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(in.Name, metric.WithUnit(in.Unit), metric.WithDescription(in.Description))
	return observed(m, g, err)
}

func observed[I metric.Observable](m *Maker, in I, err error) I {
	m.errs = append(m.errs, err)
	m.observable = append(m.observable, in)
	return in
}

// Observe has f called with each collection, once for all observed instruments, so that they are of one snapshot. The
// function that it returns ends that.
func (m *Maker) Observe(f func(metric.Observer)) (stop func() error, err error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		f(o)
		return nil
	}, m.observable...)
	if err != nil {
		return nil, err
	}
	return registration.Unregister, nil
}

// One is 1 for true, 0 for false.
func One(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
