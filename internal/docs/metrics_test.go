package docs

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/janitor/janitormetrics"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxmetrics"
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

func (m recordingMeter) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	m.note(name, "histogram", metric.NewFloat64HistogramConfig(o...))
	return m.Meter.Float64Histogram(name, o...)
}

func (m recordingMeter) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	m.note(name, "observed counter", metric.NewInt64ObservableCounterConfig(o...))
	return m.Meter.Int64ObservableCounter(name, o...)
}

func (m recordingMeter) Float64ObservableCounter(name string, o ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	m.note(name, "observed counter", metric.NewFloat64ObservableCounterConfig(o...))
	return m.Meter.Float64ObservableCounter(name, o...)
}

func (m recordingMeter) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	m.note(name, "gauge", metric.NewInt64ObservableGaugeConfig(o...))
	return m.Meter.Int64ObservableGauge(name, o...)
}

func (m recordingMeter) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	m.note(name, "gauge", metric.NewFloat64ObservableGaugeConfig(o...))
	return m.Meter.Float64ObservableGauge(name, o...)
}

// registered is what all parts of einmal register.
func registered(t *testing.T) []string {
	t.Helper()
	r := &recorder{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"localhost:1"}, Group: "g", Middleware: []consumer.Middleware{middleware.Metrics(&middleware.MetricsConfig{MeterProvider: r})},
		Topics: map[string]consumer.Topic{"t": {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}},
	})
	must(err)
	_, err = consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: r})
	must(err)
	relay, err := outbox.New(outbox.Config{Database: sqloutbox.NewDatabase(&sql.DB{}), Brokers: []string{"localhost:1"}})
	must(err)
	_, err = outboxmetrics.Register(relay, &outboxmetrics.Config{MeterProvider: r})
	must(err)
	j, err := janitor.New(&sql.DB{}, schema.Postgres, janitor.Config{Tables: []janitor.Table{{Name: "processed_event", Column: "processed_at", Keep: 24 * 3600e9}}})
	must(err)
	_, err = janitormetrics.Register(j, &janitormetrics.Config{MeterProvider: r})
	must(err)
	return r.rows
}

var metricRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z ]+) \\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\|$")

// TestMetricsTable compares docs/metrics.md with what is registered.
func TestMetricsTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, strings.Join(m[1:], " | "))
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
