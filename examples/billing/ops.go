package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
	"github.com/einmal-go/einmal/status"
)

// ops is what operators see of a process: /livez, /readyz, /metrics, /status for einmal status, and the console at /.
type ops struct {
	name     string
	listener net.Listener // nil if nobody looks
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	answered func(*http.Request, idempotency.Outcome) // counts the requests of a handler

	mu       sync.Mutex
	parts    []part
	levers   []console.Consumer
	outboxes []console.Outbox
	page     *console.Console
	end      context.CancelFunc // of the page's graphs
}

// part is a part of the process that has a Status.
type part struct {
	name     string
	status   status.Section
	notReady func() string
}

func addOps(fs *flag.FlagSet) *string {
	return fs.String("ops", "", "`host:port` at which operators find /livez, /readyz, /metrics, /status and the console (default: nowhere)")
}

// openOps opens the port, if there is one. What is measured is in /metrics.
func openOps(ctx context.Context, name, addr string) (o *ops, err error) {
	o = &ops{name: name, registry: prometheus.NewRegistry()}
	if addr != "" {
		if o.listener, err = listen(ctx, addr); err != nil {
			return nil, err
		}
	}
	if err := o.show(); err != nil {
		return nil, err
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

// addConsumer shows a consumer, and its levers.
func (o *ops) addConsumer(c *consumer.Consumer) error {
	o.levers = append(o.levers, console.Consumer{Name: c.Status().Group, Levers: c})
	o.add(part{
		name:     "consumer",
		status:   func(context.Context) (any, error) { return c.Status(), nil },
		notReady: func() string { return c.Status().NotReady },
	})
	if err := o.show(); err != nil {
		return err
	}
	_, err := consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: o.provider})
	return err
}

// addRelay shows a relay, and the table that it reads. One that waits for Kafka is ready: there is nothing that another
// one would do better.
func (o *ops) addRelay(r *relay.Relay, db outbox.Database) error {
	o.outboxes = append(o.outboxes, console.Outbox{Name: "outbox", Operator: outbox.NewOperator(db, nil)})
	o.add(part{
		name:   "outbox",
		status: func(context.Context) (any, error) { return r.Status(), nil },
		notReady: func() string {
			if !r.Status().Running {
				return "the relay does not run"
			}
			return ""
		},
	})
	if err := o.show(); err != nil {
		return err
	}
	_, err := relaymetrics.Register(r, &relaymetrics.Config{MeterProvider: o.provider})
	return err
}

func (o *ops) add(p part) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = append(o.parts, p)
}

// start serves operators until stop, which belongs behind all that they want to watch: the drain, too. When ctx is done
// the process is not ready any more, so that no requests are sent to it, and still alive.
func (o *ops) start(ctx context.Context) (stop func()) {
	if o.listener == nil {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if why := o.notReady(ctx); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		o.degraded(r.Context(), w)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", o.told)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { o.shown().ServeHTTP(w, r) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(o.listener) }()
	return func() {
		o.end()
		_ = server.Close()
	}
}

// show makes the console of what there is by now, while the process starts. Whoever reaches the port may act: this is a
// demo.
func (o *ops) show() error {
	if o.listener == nil {
		return nil
	}
	page, err := console.New(console.Config{
		Title: o.name, Processes: []console.Process{{Name: o.name, Status: http.HandlerFunc(o.told)}},
		Consumers: o.levers, Outboxes: o.outboxes,
		Authorize: func(*http.Request, console.Action) error { return nil },
	})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	go func() { _ = page.Run(ctx) }()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		o.end()
	}
	o.page, o.end = page, end
	return nil
}

func (o *ops) shown() *console.Console {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.page
}

// told serves what the process knows of itself, whatever was added by then.
func (o *ops) told(w http.ResponseWriter, r *http.Request) {
	status.Handler(o.sections(), nil).ServeHTTP(w, r)
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

// degraded writes what the parts of a process that is ready are without.
func (o *ops) degraded(ctx context.Context, w io.Writer) {
	for name, section := range o.sections() {
		value, err := section(ctx)
		if told, ok := value.(interface{ Problem() string }); err == nil && ok && told.Problem() != "" {
			fmt.Fprintf(w, "ready; %s: %s\n", name, told.Problem())
		}
	}
}

// notReady says why the process is not ready; "" if it is.
func (o *ops) notReady(ctx context.Context) string {
	if ctx.Err() != nil {
		return "draining"
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.parts {
		if why := p.notReady(); why != "" {
			return why
		}
	}
	return ""
}
