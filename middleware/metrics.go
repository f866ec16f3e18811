package middleware

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/meter"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/nils"
)

// MetricsConfig is what can be chosen about Metrics. Nil means all defaults.
type MetricsConfig struct {
	// MeterProvider makes the instruments. Defaults to otel.GetMeterProvider(), which may be set later.
	MeterProvider metric.MeterProvider
}

const meterName = "github.com/einmal-go/einmal/middleware"

// Metrics returns a middleware that measures each attempt: how long it took and what became of it, how its transactions
// ended, how long the effect came after the record, and why a message became a dead letter. docs/metrics.md lists the
// instruments.
//
// Their attributes are the topic, the group, and few words: outcomes, kinds of dead letters, and error.type, of which a
// topic has at most 100 different ones; what comes beyond is _OTHER. What cannot be measured because the MeterProvider
// refuses an instrument is refused by consumer.New.
//
// It stands inside Tracing, so that an exemplar leads to the trace, and outside all others. What the Consumer itself
// knows (lag, pauses, rebalances) is measured by package consumermetrics.
func Metrics(cfg *MetricsConfig) consumer.Middleware {
	var provider metric.MeterProvider
	if cfg != nil {
		provider = cfg.MeterProvider
	}
	in, err := newInstruments(provider)
	return func(next consumer.Handler) consumer.Handler {
		return &metrics{next: next, instruments: in, invalid: err, known: map[measureKey]*measure{}}
	}
}

type metrics struct {
	next consumer.Handler
	*instruments
	invalid error

	mu    sync.RWMutex
	known map[measureKey]*measure
}

// Unwrap implements consumer.Wrapper.
func (m *metrics) Unwrap() consumer.Handler { return m.next }

// Link implements consumer.Linker.
func (m *metrics) Link() consumer.Link { return consumer.LinkMetrics }

// Validate implements consumer.Validator.
func (m *metrics) Validate([]consumer.Handler) error { return m.invalid }

// Handle implements consumer.Handler.
func (m *metrics) Handle(ctx context.Context, msg *consumer.Message) error {
	start := time.Now()
	return observe(ctx, msg, m.next, func(what outcome, err error, _ bool) {
		m.record(ctx, msg, start, what, cmp.Or(err, msg.Result.DeadErr, msg.Result.HandedOn))
	})
}

// stands measures the transactions of a store inside that puts several messages into one. A store that several topics
// share is measured once.
func (m *metrics) stands(r recorder) {
	store, ok := r.recordsIn().(dedupstore.GroupReporter)
	if !ok || nils.Is(store) || m.invalid != nil {
		return
	}
	in := m.instruments
	store.WatchGroups(in, func(result dedupstore.GroupResult) {
		if result.Failed == "" {
			in.groupSize.Record(context.Background(), float64(result.Calls), kafkaOnly)
			return
		}
		in.groupsBack.Add(context.Background(), 1,
			metric.WithAttributeSet(attribute.NewSet(names.Kafka, names.GroupFailure.String(string(result.Failed)))))
	})
}

var kafkaOnly = metric.WithAttributeSet(attribute.NewSet(names.Kafka))

func (m *metrics) record(ctx context.Context, msg *consumer.Message, start time.Time, what outcome, err error) {
	now := time.Now()
	key := measureKey{topic: msg.Topic, group: msg.Group, what: what}
	switch {
	case err != nil && what != outcomeNotDue:
		key.errorType = errtype.Of(err)
	case what.isError():
		key.errorType = string(what)
	}
	with := m.of(ctx, key)
	m.duration.Record(ctx, now.Sub(start).Seconds(), with.attempt...)
	m.attempts.Add(ctx, 1, with.attempts...)
	t := msg.Result.Transactions
	for i, n := range [...]int{t.Committed, t.RolledBack, t.Unknown} {
		if n > 0 {
			m.transactions.Add(ctx, int64(n), with.transactions[i]...)
		}
	}
	if what == outcomeSuccess && !msg.Timestamp.IsZero() {
		if !msg.Result.End.IsZero() {
			now = msg.Result.End
		}
		m.latency.Record(ctx, max(0, now.Sub(msg.Timestamp).Seconds()), with.topic...)
	}
	if msg.Result.Dead {
		m.dead.Add(ctx, 1, metric.WithAttributeSet(deadSet(key, kindOf(msg.Result.DeadErr))))
	}
}

// instruments are those of a chain.
type instruments struct {
	duration, latency            metric.Float64Histogram
	attempts, transactions, dead metric.Int64Counter

	groupSize  metric.Float64Histogram
	groupsBack metric.Int64Counter
}

// The boundaries of histograms, in seconds: those of the conventions for an attempt; up to a day for what may have
// waited for as long as the service was down.
var (
	durationBounds = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	groupBounds    = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	latencyBounds  = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}
)

func newInstruments(provider metric.MeterProvider) (*instruments, error) {
	m := meter.New(provider, meterName)
	return &instruments{
		duration:     m.Histogram(names.ProcessDuration, durationBounds...),
		latency:      m.Histogram(names.EffectLatency, latencyBounds...),
		attempts:     m.Counter(names.Attempts),
		transactions: m.Counter(names.TxCount),
		dead:         m.Counter(names.DeadLetters),
		groupSize:    m.Histogram(names.GroupSize, groupBounds...),
		groupsBack:   m.Counter(names.GroupsRolledBack),
	}, m.Err()
}

// measureKey is what measurements differ in.
type measureKey struct {
	topic, group string
	what         outcome
	errorType    string
}

// measure has the attributes of a key in the form of options, made once: a message costs no allocation for them.
type measure struct {
	attempt      []metric.RecordOption
	attempts     []metric.AddOption
	topic        []metric.RecordOption
	transactions [3][]metric.AddOption // committed, rolled back, unknown
}

const (
	maxMeasures = 100 // of a topic
	errorOther  = "_OTHER"
)

func (m *metrics) of(ctx context.Context, key measureKey) *measure {
	m.mu.RLock()
	with, n := m.known[key], len(m.known)
	m.mu.RUnlock()
	if with != nil {
		return with
	}
	if n >= maxMeasures && key.errorType != errorOther && key.errorType != "" {
		key.errorType = errorOther
		return m.of(ctx, key)
	}
	with = newMeasure(key)
	if n == 0 {
		m.zero(ctx, key, with)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[key] = with
	return with
}

// zero makes the series of what is rare before it happens: of one that begins with 1, Prometheus does not see that it
// has grown.
func (m *metrics) zero(ctx context.Context, key measureKey, with *measure) {
	for _, outcome := range with.transactions {
		m.transactions.Add(ctx, 0, outcome...)
	}
	for _, kind := range deadletter.Kinds() {
		m.dead.Add(ctx, 0, metric.WithAttributeSet(deadSet(key, kind)))
	}
}

func newMeasure(key measureKey) *measure {
	attrs := append(topicAttributes(key), names.OperationName.String(names.Process),
		names.Outcome.String(string(key.what)))
	if key.errorType != "" {
		attrs = append(attrs, names.ErrorType.String(key.errorType))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	with := &measure{
		attempt:  []metric.RecordOption{set},
		attempts: []metric.AddOption{set},
		topic:    []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(topicAttributes(key)...))},
	}
	for i, outcome := range [...]string{"committed", "rolled_back", "unknown"} {
		with.transactions[i] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(append(topicAttributes(key),
			names.TxOutcome.String(outcome))...))}
	}
	return with
}

func topicAttributes(key measureKey) []attribute.KeyValue {
	return []attribute.KeyValue{names.Kafka, names.Topic.String(key.topic), names.Group.String(key.group)}
}

// deadSet is made for each dead letter: they are few.
func deadSet(key measureKey, kind deadletter.Kind) attribute.Set {
	return attribute.NewSet(append(topicAttributes(key), names.DeadKind.String(string(kind)))...)
}
