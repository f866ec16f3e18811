// Package janitormetrics measures a Janitor by its Status. docs/metrics.md lists the instruments.
//
//	stop, err := janitormetrics.Register(j, nil) // with OpenTelemetry's global MeterProvider
//	...
//	defer stop()
//	err = j.Run(ctx)
package janitormetrics

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/internal/meter"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/janitor"
)

// Config is what can be chosen about Register. Nil means all defaults.
type Config struct {
	// MeterProvider makes the instruments. Defaults to otel.GetMeterProvider(), which may be set later.
	MeterProvider metric.MeterProvider
}

const scope = "github.com/einmal-go/einmal/janitor/janitormetrics"

// Register has j's Status read with each collection of the MeterProvider, once for all instruments, and returns a
// function that ends it.
func Register(j *janitor.Janitor, cfg *Config) (stop func() error, err error) {
	if cfg == nil {
		cfg = &Config{}
	}
	m := meter.New(cfg.MeterProvider, scope)
	in := &instruments{
		deleted: m.ObservedCounter(names.JanitorDeleted), created: m.ObservedCounter(names.JanitorCreated),
		dropped: m.ObservedCounter(names.JanitorDropped), sweeps: m.ObservedCounter(names.JanitorSweeps),
	}
	return m.Observe(func(o metric.Observer) {
		for _, t := range j.Status().Tables {
			in.observe(o, t)
		}
	})
}

type instruments struct {
	deleted, created, dropped, sweeps metric.Int64ObservableCounter
}

func (in *instruments) observe(o metric.Observer, t janitor.TableStatus) {
	table := names.Table.String(t.Table)
	with := metric.WithAttributeSet(attribute.NewSet(table))
	o.ObserveInt64(in.deleted, t.Deleted, with)
	o.ObserveInt64(in.created, t.Created, with)
	o.ObserveInt64(in.dropped, t.Dropped, with)
	for outcome, n := range map[string]int64{"done": t.Sweeps, "busy": t.Busy, "failed": t.Failures} {
		o.ObserveInt64(in.sweeps, n, metric.WithAttributeSet(attribute.NewSet(table, names.SweepOutcome.String(outcome))))
	}
}
