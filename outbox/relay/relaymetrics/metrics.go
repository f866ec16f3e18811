// Package relaymetrics measures a Relay by its Status. docs/metrics.md lists the instruments.
//
//	stop, err := relaymetrics.Register(r, nil) // with OpenTelemetry's global MeterProvider
//	...
//	defer stop()
//	err = r.Run(ctx)
package relaymetrics

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/internal/meter"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/outbox/relay"
)

// Config is what can be chosen about Register. Nil means all defaults.
type Config struct {
	// MeterProvider makes the instruments. Defaults to otel.GetMeterProvider(), which may be set later.
	MeterProvider metric.MeterProvider
}

const scope = "github.com/einmal-go/einmal/outbox/relay/relaymetrics"

// Register has r's Status read with each collection of the MeterProvider, once for all instruments, and returns a
// function that ends it. Relays of one process and one MeterProvider are not told apart: register one of them.
func Register(r *relay.Relay, cfg *Config) (stop func() error, err error) {
	if cfg == nil {
		cfg = &Config{}
	}
	m := meter.New(cfg.MeterProvider, scope)
	in := &instruments{
		running: m.Gauge(names.OutboxRunning), paused: m.Gauge(names.OutboxPaused),
		healthy: m.Gauge(names.OutboxHealthy), backlog: m.Gauge(names.OutboxBacklog),
		blocked: m.Gauge(names.OutboxBlocked), inFlight: m.Gauge(names.OutboxInFlight),
		oldest: m.GaugeSeconds(names.OutboxOldestAge), seen: m.GaugeSeconds(names.OutboxSeenAge),
		published: m.ObservedCounter(names.OutboxPublished), lost: m.ObservedCounter(names.OutboxLeaseLost),
		returned: m.ObservedCounter(names.OutboxReturned), errors: m.ObservedCounter(names.OutboxErrors),
	}
	return m.Observe(func(o metric.Observer) { in.observe(o, r.Status(), time.Now()) })
}

type instruments struct {
	running, paused, healthy, backlog, blocked, inFlight metric.Int64ObservableGauge
	oldest, seen                                         metric.Float64ObservableGauge
	published, lost, returned, errors                    metric.Int64ObservableCounter
}

func (in *instruments) observe(o metric.Observer, s relay.Status, now time.Time) {
	with := metric.WithAttributeSet(attribute.NewSet(names.OutboxMode.String(string(s.Mode))))
	o.ObserveInt64(in.running, meter.One(s.Running), with)
	o.ObserveInt64(in.paused, meter.One(s.Paused), with)
	o.ObserveInt64(in.healthy, meter.One(s.Running && s.Trouble == ""), with)
	o.ObserveInt64(in.published, s.Published, with)
	o.ObserveInt64(in.lost, s.LeaseLost, with)
	o.ObserveInt64(in.returned, s.Returned, with)
	o.ObserveInt64(in.errors, s.Errors, with)
	if !s.Seen.IsZero() {
		o.ObserveFloat64(in.seen, now.Sub(s.Seen).Seconds(), with)
	}
	if !s.Fresh {
		return // of the table nothing is known now: no number is better than a wrong one
	}
	o.ObserveInt64(in.backlog, s.Backlog, with)
	o.ObserveInt64(in.blocked, s.Blocked, with)
	o.ObserveInt64(in.inFlight, s.InFlight, with)
	o.ObserveFloat64(in.oldest, s.OldestAge.Seconds(), with)
}
