package main

import (
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/examples/billing/board"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxmetrics"
	"github.com/einmal-go/einmal/status"
)

// ops is what operators see of a process: /livez, /readyz, /metrics, /status for einmal status, and a page at /.
type ops struct {
	name     string
	listener net.Listener // nil if nobody looks
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	answered func(*http.Request, idempotency.Outcome) // counts the requests of a handler

	mu    sync.Mutex
	parts []part
}

// part is a part of the process that has a Status.
type part struct {
	name     string
	status   status.Section
	notReady func() string
	table    func() board.Table
}

func addOps(fs *flag.FlagSet) *string {
	return fs.String("ops", "", "`host:port` at which operators find /livez, /readyz, /metrics, /status and a page (default: nowhere)")
}

// openOps opens the port, if there is one. What is measured is in /metrics.
func openOps(ctx context.Context, name, addr string) (o *ops, err error) {
	o = &ops{name: name, registry: prometheus.NewRegistry()}
	if addr != "" {
		if o.listener, err = listen(ctx, addr); err != nil {
			return nil, err
		}
	}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(o.registry))
	if err != nil {
		return nil, err
	}
	o.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	o.answered, err = idempotencymetrics.OnAnswer(&idempotencymetrics.Config{MeterProvider: o.provider})
	return o, err
}

// meters are what the parts of the process measure with.
func (o *ops) meters() metric.MeterProvider { return o.provider }

// addConsumer shows a consumer.
func (o *ops) addConsumer(c *consumer.Consumer) error {
	o.add(part{
		name:     "consumer",
		status:   func(context.Context) (any, error) { return c.Status(), nil },
		notReady: func() string { return c.Status().NotReady },
		table:    func() board.Table { return board.Consumer(c.Status()) },
	})
	_, err := consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: o.provider})
	return err
}

// addRelay shows a relay. One that waits for Kafka is ready: there is nothing that another one would do better.
func (o *ops) addRelay(r *outbox.Relay) error {
	o.add(part{
		name:   "outbox",
		status: func(context.Context) (any, error) { return r.Status(), nil },
		notReady: func() string {
			if !r.Status().Running {
				return "the relay does not run"
			}
			return ""
		},
		table: func() board.Table { return board.Relay(r.Status()) },
	})
	_, err := outboxmetrics.Register(r, &outboxmetrics.Config{MeterProvider: o.provider})
	return err
}

func (o *ops) add(p part) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = append(o.parts, p)
}

// start serves operators until stop, which belongs behind all that they want to watch: the drain, too. When ctx is done the process is
// not ready any more, so that no requests are sent to it, and still alive.
func (o *ops) start(ctx context.Context) (stop func()) {
	if o.listener == nil {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := o.board(ctx).NotReady; why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { status.Handler(o.sections(), nil).ServeHTTP(w, r) })
	mux.HandleFunc("GET /board", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o.board(ctx))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_ = board.Page{Title: o.name, Now: time.Now(), Boards: []board.Board{o.board(ctx)}}.Write(w)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(o.listener) }()
	return func() { _ = server.Close() }
}

// sections are what einmal status asks for.
func (o *ops) sections() status.Sections {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := status.Sections{}
	for _, p := range o.parts {
		list[p.name] = p.status
	}
	return list
}

// board is a snapshot.
func (o *ops) board(ctx context.Context) board.Board {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := board.Board{Process: o.name, Tables: []board.Table{}}
	for _, p := range o.parts {
		if b.NotReady == "" {
			b.NotReady = p.notReady()
		}
		b.Tables = append(b.Tables, p.table())
	}
	if ctx.Err() != nil {
		b.NotReady = "draining"
	}
	return b
}
