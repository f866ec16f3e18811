package observetest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/janitor/janitormetrics"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
	"github.com/einmal-go/einmal/schema"
)

// world is a service's surroundings, and all that is seen of it.
type world struct {
	testing.TB

	b            *serverstest.Broker
	topic, group string
	url          string
	pool         *pgxpool.Pool

	reader   *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider
	registry *prometheus.Registry
	seen     *movements // in all scrapes
	spans    *tracetest.InMemoryExporter
	tracers  *sdktrace.TracerProvider
	logs     *logbook
}

func newWorld(t testing.TB) *world {
	t.Helper()
	b := serverstest.InProcess(t)
	w := &world{TB: t, b: b, topic: b.Topic(t, 1), group: serverstest.Group(t), url: serverstest.DatabaseURL(t),
		logs: &logbook{}, seen: newMovements()}
	w.reader, w.registry, w.spans = sdkmetric.NewManualReader(), prometheus.NewRegistry(), tracetest.NewInMemoryExporter()
	exporter, err := otelprom.New(otelprom.WithRegisterer(w.registry))
	w.must(err)
	w.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader), sdkmetric.WithReader(exporter))
	w.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.pool, err = pgxpool.New(context.Background(), w.url)
	w.must(err)
	t.Cleanup(w.pool.Close)
	w.must(schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := w.pool.Exec(ctx, sql)
		return err
	}, nil))
	w.exec("create table effect (name text not null)")
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.Context(), sql, args...)
	w.must(err)
}

// eventually waits long enough for a machine that is very busy.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(120 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within 120 s: %s\n%s", what, w.logs)
		}
	}
}

// record is one with an id of its event.
func (w *world) record(id, key, value string, headers ...string) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{
		Topic: w.topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value), Timestamp: time.Now(),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
	}
	for pair := range slices.Chunk(headers, 2) {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(pair[0]), Value: []byte(pair[1])})
	}
	return m
}

func (w *world) produce(msgs ...*sarama.ProducerMessage) { w.b.Produce(w, msgs...) }

type txHandler = consumer.TxHandler[pgx.Tx]

// config is that of a service with everything in its chain.
func (w *world) config(h txHandler) consumer.Config {
	store := pgxstore.New(w.pool, nil)
	return consumer.Config{
		Brokers: w.b.Addrs, Group: w.group, Logger: w.logs.logger(),
		Middleware: []consumer.Middleware{
			middleware.Tracing(&middleware.TracingConfig{TracerProvider: w.tracers}),
			middleware.Metrics(&middleware.MetricsConfig{MeterProvider: w.meters}),
			middleware.Logging(w.logs.logger(), &middleware.LoggingConfig{PerSecond: -1, ErrorText: noText}),
		},
		Topics: map[string]consumer.Topic{w.topic: {
			Order: consumer.KeyOrder, Workers: 4,
			Middleware: []consumer.Middleware{
				middleware.DeadLetter(store, pgxdeadletter.New(w.pool, nil), &middleware.DeadLetterConfig{
					Logger: w.logs.logger(), ErrorText: func(error, *consumer.Message) string { return "" },
				}),
				middleware.Retry(3, &middleware.RetryConfig{Base: time.Millisecond, Max: 10 * time.Millisecond}),
				middleware.Recover(),
			},
			Handler: middleware.Dedup(store, h, &middleware.DedupConfig{Window: 24 * time.Hour}),
		}},
	}
}

func noText(error) string { return "" }

// consume runs a measured Consumer until the test ends, or stop is called.
func (w *world) consume(cfg consumer.Config) (c *consumer.Consumer, stop func()) {
	w.Helper()
	c, err := consumer.New(cfg)
	w.must(err)
	_, err = consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: w.meters})
	w.must(err)
	return c, w.run(c.Run)
}

// relay runs a measured Relay.
func (w *world) relay(edit func(*relay.Config)) (r *relay.Relay, stop func()) {
	w.Helper()
	cfg := relay.Config{
		Database: pgxoutbox.NewDatabase(w.pool), Brokers: w.b.Addrs, Keep: -1, Logger: w.logs.logger(),
		TracerProvider: w.tracers,
	}
	edit(&cfg)
	r, err := relay.New(cfg)
	w.must(err)
	_, err = relaymetrics.Register(r, &relaymetrics.Config{MeterProvider: w.meters})
	w.must(err)
	return r, w.run(r.Run)
}

func (w *world) write(events ...outbox.Event) {
	w.Helper()
	w.must(pgx.BeginFunc(w.Context(), w.pool,
		func(tx pgx.Tx) error { return pgxoutbox.NewWriter(nil).Write(w.Context(), tx, events...) }))
}

// janitor is a measured one.
func (w *world) janitor(tables ...janitor.Table) *janitor.Janitor {
	w.Helper()
	cfg, err := pgx.ParseConfig(w.url)
	w.must(err)
	db := stdlib.OpenDB(*cfg)
	w.Cleanup(func() { _ = db.Close() })
	j, err := janitor.New(db, schema.Postgres, janitor.Config{Tables: tables, Logger: w.logs.logger()})
	w.must(err)
	_, err = janitormetrics.Register(j, &janitormetrics.Config{MeterProvider: w.meters})
	w.must(err)
	return j
}

// served is a service that answers requests with keys, measured and found by a ServeMux. It returns a client of it,
// whose request has been counted when it returns.
func (w *world) served() func(key, body string) (status int) {
	w.Helper()
	onAnswer, err := idempotencymetrics.OnAnswer(&idempotencymetrics.Config{MeterProvider: w.meters})
	w.must(err)
	handler, err := idempotency.NewHandler(pgxidempotency.New(w.pool, nil),
		func(ctx context.Context, tx pgx.Tx, _ http.ResponseWriter, _ *http.Request) error {
			_, err := tx.Exec(ctx, "insert into effect values ('paid')")
			return err
		}, idempotency.HandlerConfig{SingleTenant: true, OnAnswer: onAnswer, Logger: w.logs.logger()})
	w.must(err)
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", handler)
	return func(key, body string) int {
		answer, req := httptest.NewRecorder(), httptest.NewRequestWithContext(w.Context(), http.MethodPost, "/orders/1/pay",
			strings.NewReader(body))
		req.Header.Set("Idempotency-Key", key)
		mux.ServeHTTP(answer, req)
		return answer.Code
	}
}

// run runs f until the test ends, or stop is called.
func (w *world) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f(ctx) // a test looks at what it is about
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return stop
}

// logbook keeps lines of all levels, in JSON.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logbook) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
