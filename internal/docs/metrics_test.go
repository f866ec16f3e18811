package docs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/janitor/janitormetrics"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

// recorder is a MeterProvider that notes what is registered: "name | kind | unit | description".
type recorder struct {
	noop.MeterProvider

	rows []string
}

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return recordingMeter{r: r} }

type recordingMeter struct {
	noop.Meter

	r *recorder
}

func (m recordingMeter) note(name, kind string, cfg interface {
	Unit() string
	Description() string
}) {
	m.r.rows = append(m.r.rows, fmt.Sprintf("%s | %s | %s | %s", name, kind, cfg.Unit(), cfg.Description()))
}

func (m recordingMeter) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.note(name, "counter", metric.NewInt64CounterConfig(o...))
	return m.Meter.Int64Counter(name, o...)
}

func (m recordingMeter) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram,
	error) {
	m.note(name, "histogram", metric.NewFloat64HistogramConfig(o...))
	return m.Meter.Float64Histogram(name, o...)
}

func (m recordingMeter) Int64ObservableCounter(name string,
	o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	m.note(name, "observed counter", metric.NewInt64ObservableCounterConfig(o...))
	return m.Meter.Int64ObservableCounter(name, o...)
}

func (m recordingMeter) Float64ObservableCounter(name string,
	o ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	m.note(name, "observed counter", metric.NewFloat64ObservableCounterConfig(o...))
	return m.Meter.Float64ObservableCounter(name, o...)
}

func (m recordingMeter) Int64ObservableGauge(name string,
	o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	m.note(name, "gauge", metric.NewInt64ObservableGaugeConfig(o...))
	return m.Meter.Int64ObservableGauge(name, o...)
}

func (m recordingMeter) Float64ObservableGauge(name string,
	o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	m.note(name, "gauge", metric.NewFloat64ObservableGaugeConfig(o...))
	return m.Meter.Float64ObservableGauge(name, o...)
}

// registered is what all parts of einmal register.
func registered(t *testing.T) []string {
	t.Helper()
	r := &recorder{}
	register(t, r)
	return r.rows
}

// register has parts of einmal, of which none has run yet, register all instruments.
func register(t *testing.T, r metric.MeterProvider) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"localhost:1"}, Group: "g",
		Middleware: []consumer.Middleware{middleware.Metrics(&middleware.MetricsConfig{MeterProvider: r})},
		Topics:     map[string]consumer.Topic{"t": {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}},
	})
	must(err)
	_, err = consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: r})
	must(err)
	sender, err := relay.New(relay.Config{Database: sqloutbox.NewDatabase(&sql.DB{}), Brokers: []string{"localhost:1"}})
	must(err)
	_, err = relaymetrics.Register(sender, &relaymetrics.Config{MeterProvider: r})
	must(err)
	j, err := janitor.New(&sql.DB{}, schema.Postgres,
		janitor.Config{Tables: []janitor.Table{{Name: "processed_event", Column: "processed_at", Keep: 24 * 3600e9}}})
	must(err)
	_, err = janitormetrics.Register(j, &janitormetrics.Config{MeterProvider: r})
	must(err)
	_, err = idempotencymetrics.OnAnswer(&idempotencymetrics.Config{MeterProvider: r})
	must(err)
}

var metricRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z ]+) \\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\| ([^|]+) \\|$")

// TestMetricsTable compares docs/metrics.md with what is registered.
func TestMetricsTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, strings.Join(m[1:5], " | "))
	}
	want := registered(t)
	for _, row := range want {
		if !slices.Contains(documented, row) {
			t.Errorf("docs/metrics.md lacks %s", row)
		}
	}
	for _, row := range documented {
		if !slices.Contains(want, row) {
			t.Errorf("nothing registers %s", row)
		}
	}
	if len(want) < 30 {
		t.Errorf("only %d instruments were registered", len(want))
	}
}

// TestMetricsAreAbsent compares the column that says when an instrument has no series with parts of which none has run:
// what is never absent is there, and what is not there has a condition. The lag is the exception: it is 0 where no
// partition is held, and consumermetrics tests when it is not known. That each instrument is there in a service that
// runs is a test of observetest.
func TestMetricsAreAbsent(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	register(t, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"einmal.consumer.lag": false}
	for _, scope := range all.ScopeMetrics {
		for _, in := range scope.Metrics {
			if _, excepted := there[in.Name]; !excepted {
				there[in.Name] = true
			}
		}
	}
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	always := 0
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		name, absent := m[1], m[5]
		if (absent == "never") != there[name] {
			t.Errorf("docs/metrics.md says of %s %q; before anything has run it is there: %v", name, absent, there[name])
		}
		if absent == "never" {
			always++
		}
	}
	if always < 20 {
		t.Errorf("only %d instruments are never absent", always)
	}
}

// TestChainMetricsAreAbsent is that of the instruments of middleware.Metrics after an attempt that has failed.
func TestChainMetricsAreAbsent(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	link := middleware.Metrics(&middleware.MetricsConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	failing := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return errors.New("no") })
	_ = link(failing).Handle(t.Context(), &consumer.Message{Topic: "t", Group: "g", Timestamp: time.Now()})
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil || len(all.ScopeMetrics) != 1 {
		t.Fatal(all, err)
	}
	var there, documented []string
	for _, in := range all.ScopeMetrics[0].Metrics {
		there = append(there, in.Name)
	}
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		if m[5] == "before the topic's first attempt" {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(there)
	slices.Sort(documented)
	if !slices.Equal(there, documented) {
		t.Errorf("after an attempt there are %q, docs/metrics.md says %q", there, documented)
	}
}
