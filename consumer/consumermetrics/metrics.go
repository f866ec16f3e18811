// Package consumermetrics measures a Consumer by its Status: lag, what is held, parked or paused, how far the frontier
// is behind, and what has happened to its partitions. What becomes of messages is measured by middleware.Metrics.
// docs/metrics.md lists the instruments.
//
//	c, err := consumer.New(cfg)
//	...
//	stop, err := consumermetrics.Register(c, nil) // with OpenTelemetry's global MeterProvider
//	...
//	defer stop()
//	err = c.Run(ctx)
package consumermetrics

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/meter"
	"github.com/einmal-go/einmal/internal/names"
)

// Config is what can be chosen about Register. Nil means all defaults.
type Config struct {
	// MeterProvider makes the instruments. Defaults to otel.GetMeterProvider(), which may be set later.
	MeterProvider metric.MeterProvider

	// PerPartition gives what is known of each partition the attribute messaging.destination.partition.id. Defaults to
	// false: the partitions of a topic are added up (of ages and of the frontier's gap, the largest is taken), so that the
	// number of time series does not grow with them. Status tells the partition.
	PerPartition bool
}

const scope = "github.com/einmal-go/einmal/consumer/consumermetrics"

// Register has c's Status read with each collection of the MeterProvider, once for all instruments, and returns a
// function that ends it. Consumers of several groups may be registered; those of one group are not told apart in one
// process.
func Register(c *consumer.Consumer, cfg *Config) (stop func() error, err error) {
	if cfg == nil {
		cfg = &Config{}
	}
	m := meter.New(cfg.MeterProvider, scope)
	in := newInstruments(m, c.Status().Group, cfg.PerPartition)
	return m.Observe(func(o metric.Observer) { in.observe(o, c.Status(), time.Now()) })
}

func newInstruments(m *meter.Maker, group string, perPartition bool) *instruments {
	return &instruments{
		group: names.Group.String(group), perPartition: perPartition,

		ready:      m.Gauge(names.ConsumerReady),
		rebalances: m.ObservedCounter(names.ConsumerRebalances),
		short:      m.ObservedCounter(names.ConsumerShortSessions),

		assigned:   m.ObservedCounter(names.ConsumerAssigned),
		drains:     m.ObservedCounter(names.ConsumerDrains),
		cut:        m.ObservedCounter(names.ConsumerDrainsCut),
		outOfRange: m.ObservedCounter(names.ConsumerOutOfRange),
		drainTime:  m.ObservedSeconds(names.ConsumerDrainTime),
		pausedTime: m.ObservedSeconds(names.ConsumerPausedTime),

		partitions: m.Gauge(names.ConsumerPartitions),
		unreadable: m.Gauge(names.ConsumerUnreadable),
		paused:     m.Gauge(names.ConsumerPaused),
		lag:        m.Gauge(names.ConsumerLag),
		held:       m.Gauge(names.ConsumerHeld),
		heldSize:   m.Gauge(names.ConsumerHeldSize),
		inFlight:   m.Gauge(names.ConsumerInFlight),
		parked:     m.Gauge(names.ConsumerParked),
		gap:        m.Gauge(names.ConsumerFrontierGap),
		committed:  m.Gauge(names.ConsumerCommitted),
		end:        m.Gauge(names.ConsumerEnd),
		waiting:    m.GaugeSeconds(names.ConsumerUncommitted),
		oldest:     m.GaugeSeconds(names.ConsumerOldestAge),
		failing:    m.GaugeSeconds(names.ConsumerFailingAge),
	}
}

type instruments struct {
	ready                                                                      metric.Int64ObservableGauge
	rebalances, short, assigned, drains, cut, outOfRange                       metric.Int64ObservableCounter
	drainTime, pausedTime                                                      metric.Float64ObservableCounter
	partitions, unreadable, paused, lag, held, heldSize, inFlight, parked, gap metric.Int64ObservableGauge
	committed, end                                                             metric.Int64ObservableGauge
	waiting, oldest, failing                                                   metric.Float64ObservableGauge

	group        attribute.KeyValue
	perPartition bool
}

func (in *instruments) observe(o metric.Observer, s consumer.Status, now time.Time) {
	whole := in.with()
	o.ObserveInt64(in.ready, meter.One(s.NotReady == ""), whole)
	o.ObserveInt64(in.rebalances, s.Totals.Rebalances, whole)
	o.ObserveInt64(in.short, s.Totals.ShortSessions, whole)
	sums := map[place]*sum{}
	for i := range s.Totals.Topics {
		t := &s.Totals.Topics[i]
		in.observeTotals(o, t)
		if !in.perPartition {
			sums[place{t.Topic, -1}] = &sum{} // what holds no partition says 0, so that nobody is misled by the last one's values
		}
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		at := place{p.Topic, p.Partition}
		if !in.perPartition {
			at.partition = -1
		}
		if sums[at] == nil {
			sums[at] = &sum{}
		}
		sums[at].add(p, now)
	}
	for at, sum := range sums {
		in.observeSum(o, at, sum)
	}
}

func (in *instruments) observeTotals(o metric.Observer, t *consumer.TopicTotals) {
	with := in.with(names.Topic.String(t.Topic))
	o.ObserveInt64(in.assigned, t.Assigned, with)
	o.ObserveInt64(in.drains, t.Drained, with)
	o.ObserveInt64(in.cut, t.DrainsCut, with)
	o.ObserveInt64(in.outOfRange, t.OutOfRange, with)
	o.ObserveFloat64(in.drainTime, t.DrainTime.Seconds(), with)
	o.ObserveFloat64(in.pausedTime, t.Paused.Seconds(), with)
}

func (in *instruments) observeSum(o metric.Observer, at place, s *sum) {
	attrs := []attribute.KeyValue{names.Topic.String(at.topic)}
	if at.partition >= 0 {
		attrs = append(attrs, names.Partition.String(strconv.Itoa(int(at.partition))))
	}
	with := in.with(attrs...)
	o.ObserveInt64(in.partitions, s.partitions, with)
	o.ObserveInt64(in.unreadable, s.unreadable, with)
	o.ObserveInt64(in.paused, s.paused, with)
	if !s.lagUnknown { // a sum of which a part is missing would look like a small lag
		o.ObserveInt64(in.lag, s.lag, with)
	}
	if s.partitions > 0 && !s.committedUnknown {
		o.ObserveInt64(in.committed, s.committed, with)
	}
	if s.partitions > 0 && !s.endUnknown {
		o.ObserveInt64(in.end, s.end, with)
	}
	o.ObserveFloat64(in.waiting, s.waiting.Seconds(), with)
	o.ObserveInt64(in.held, s.held, with)
	o.ObserveInt64(in.heldSize, s.heldSize, with)
	o.ObserveInt64(in.inFlight, s.inFlight, with)
	o.ObserveInt64(in.parked, s.parked, with)
	o.ObserveInt64(in.gap, s.gap, with)
	o.ObserveFloat64(in.oldest, s.oldest.Seconds(), with)
	o.ObserveFloat64(in.failing, s.failing.Seconds(), with)
}

func (in *instruments) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue{names.Kafka, in.group}, more...)...))
}
