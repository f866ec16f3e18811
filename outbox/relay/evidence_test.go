package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
)

// faulty is a relay whose servers can be broken.
type faulty struct {
	*bench
	kafka, database line
	readOnly        atomic.Bool
	log             output
	relay           *relay.Relay
	gauges          func() map[string]float64
}

// output is a log that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.b.String(), text)
}

// newFaultyDatabase has no relay yet.
func newFaultyDatabase(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{bench: newBench(t, 1)}
	pc, err := pgxpool.ParseConfig(f.URL)
	must(t, err)
	pc.ConnConfig.DialFunc = f.database.DialContext
	pc.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { //nolint:staticcheck // it is enough
		_, err := conn.Exec(ctx, fmt.Sprintf("set default_transaction_read_only = %t", f.readOnly.Load()))
		return err == nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	must(t, err)
	t.Cleanup(pool.Close)
	f.db = pgxoutbox.NewDatabase(pool)
	return f
}

func (f *faulty) faultyConfig(mode outbox.Mode) relay.Config {
	cfg := f.config(mode)
	cfg.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	cfg.Sarama = func(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, &f.kafka }
	return cfg
}

func newFaulty(t *testing.T, mode outbox.Mode) *faulty {
	t.Helper()
	f := newFaultyDatabase(t)
	f.relay = start(t, f.faultyConfig(mode))
	reader := sdkmetric.NewManualReader()
	_, err := relaymetrics.Register(f.relay,
		&relaymetrics.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	must(t, err)
	f.gauges = func() map[string]float64 { return gauges(t, reader) }
	return f
}

func gauges(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	must(t, reader.Collect(context.Background(), &all))
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					values[m.Name] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[m.Name] = p.Value
				}
			}
		}
	}
	return values
}

// A relay is healthy as long as there is fresh evidence that it does its work. Whatever server is broken, and however,
// Status, the metric and the log say so soon, with the cause; and that it is over.
func TestTroubleIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault, cure func(f *faulty)
		says        []string
		database    bool
	}{
		"Kafka is frozen": {
			func(f *faulty) { f.kafka.frozen.Store(true) }, func(f *faulty) { f.kafka.frozen.Store(false) },
			[]string{"Kafka", "not answered"}, false,
		},
		"Kafka refuses": {
			func(f *faulty) { f.kafka.refuse() }, func(f *faulty) { f.kafka.refused.Store(false) },
			[]string{"Kafka is away", "refused"}, false,
		},
		"Kafka is out of reach": {
			func(f *faulty) { f.kafka.unreachable.Store(true) }, func(f *faulty) { f.kafka.unreachable.Store(false) },
			[]string{"Kafka is away", "timeout"}, false,
		},
		"the database is frozen": {
			func(f *faulty) { f.database.frozen.Store(true) }, func(f *faulty) { f.database.frozen.Store(false) },
			[]string{"the table was last read", "not answer"}, true,
		},
		"the database is stopped": {
			func(f *faulty) { f.database.refuse() }, func(f *faulty) { f.database.refused.Store(false) },
			[]string{"the table was last read", "refused"}, true,
		},
		"the database is read-only": {
			func(f *faulty) { f.readOnly.Store(true) }, func(f *faulty) { f.readOnly.Store(false) },
			[]string{"the table was last read", "read-only"}, true,
		},
	} {
		for _, mode := range modes {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				f := newFaulty(t, mode)
				f.insert("1")
				eventually(t, "it does its work", func() bool {
					return f.rows("true") == 0 && f.relay.Status().Fresh && f.relay.Status().Problem() == "" &&
						f.gauges()["einmal.outbox.healthy"] == 1
				})
				c.fault(f)
				f.insert("2")
				began := time.Now()
				eventually(t, "Status says so, with the cause", func() bool {
					problem := f.relay.Status().Problem()
					for _, part := range c.says {
						if !strings.Contains(problem, part) {
							return false
						}
					}
					return true
				})
				t.Logf("after %v: %s", time.Since(began).Round(time.Second/10), f.relay.Status().Problem())
				if took := time.Since(began); took > 30*time.Second { // 15 s and some load
					t.Errorf("it took %v", took)
				}
				eventually(t, "so does the log", func() bool { return f.log.has("does not do its work") })
				seen := f.gauges()
				if _, told := seen["einmal.outbox.backlog"]; seen["einmal.outbox.healthy"] != 0 || c.database && told {
					t.Errorf("metrics: %v", seen)
				}
				c.cure(f)
				eventually(t, "it is over", func() bool {
					return f.rows("true") == 0 && f.relay.Status().Problem() == "" && f.log.has("does its work again")
				})
			})
		}
	}
}

// Rows that somebody else holds, and nobody sends, are trouble of this relay too: nothing else would tell.
func TestRowsThatNobodySends(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	tx, err := b.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashoid('outbox_event'::regclass), n) from generate_series(0, 63) n")
	must(t, err)
	b.insert("1")
	r := start(t, b.config(outbox.SinglePhase))
	eventually(t, "Status says so",
		func() bool { return strings.Contains(r.Status().Problem(), "events wait, and none was sent") })
	must(t, tx.Rollback(context.Background()))
	eventually(t, "it is over", func() bool { return b.rows("true") == 0 && r.Status().Problem() == "" })
}

// A relay that sends nothing because another one sends everything is healthy: the table shows it.
func TestIdleBesideABusyRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("first")
	cfg := b.config(outbox.SinglePhase)
	start(t, cfg)
	eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
	cfg.PollInterval, cfg.IdleInterval = time.Hour, time.Hour // it never looks for rows
	idle := start(t, cfg)
	for began, n := time.Now(), 0; time.Since(began) < 14*time.Second; n++ {
		b.insert(fmt.Sprint(n))
		time.Sleep(50 * time.Millisecond)
		if problem := idle.Status().Problem(); problem != "" && time.Since(began) > time.Second && idle.Status().Running &&
			!idle.Status().Seen.IsZero() {
			t.Fatalf("after %v: %s", time.Since(began), problem)
		}
	}
}
