package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/middleware"
)

// observe measures what tracing and metrics cost: of the full chain, and of a handler that does nothing, where each
// nanosecond shows.
func observe(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("observe", flag.ContinueOnError)
	messages := fs.Int("messages", 20_000, "messages per round of the full chain, on 1 partition")
	empties := fs.Int("empty", 500_000, "messages per round of an empty handler, on 4 partitions; 0 leaves it out")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("tracing (sampled out) and metrics (SDK, collected each second)\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\n",
		b.kafka.Origin, b.database.Origin, machine())
	results, err := interleave(ctx, *rounds,
		sidesOf(func(ctx context.Context, o observers) (float64, error) { return b.observed(ctx, *messages, o) }))
	if err != nil {
		return err
	}
	report(os.Stdout, "full chain, msg/s", results)
	if *empties > 0 {
		if err := b.observedEmpty(ctx, *empties, *rounds); err != nil {
			return err
		}
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

// observers are the links that a side has.
type observers struct{ tracing, metrics bool }

func sidesOf(run func(ctx context.Context, o observers) (float64, error)) (sides []side) {
	for _, s := range []struct {
		name string
		o    observers
	}{{"neither", observers{}}, {"tracing", observers{tracing: true}}, {"metrics", observers{metrics: true}},
		{"both", observers{true, true}}} {
		sides = append(sides, side{s.name, func(ctx context.Context) (float64, error) { return run(ctx, s.o) }})
	}
	return sides
}

func (b *dedupBench) observed(ctx context.Context, messages int, o observers) (float64, error) {
	return b.round(ctx, 1, messages, func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		return o.run(ctx, b.config(topic, pool, m, consumer.PartitionOrder, 0))
	})
}

func (b *dedupBench) observedEmpty(ctx context.Context, messages, rounds int) error {
	payload := bytes.Repeat([]byte("x"), 200)
	return withTopic(b.kafka.Addrs, 4, messages, func(int) []byte { return payload }, func(topic string) error {
		results, err := interleave(ctx, rounds, sidesOf(func(ctx context.Context, o observers) (float64, error) {
			m := newMeter(messages)
			return m.until(ctx, func(ctx context.Context) error {
				return o.run(ctx, consumer.Config{
					Brokers: b.kafka.Addrs, Group: unique(), Middleware: []consumer.Middleware{m.link}, Logger: quiet,
					Topics: map[string]consumer.Topic{topic: {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}},
				})
			})
		}))
		if err == nil {
			report(os.Stdout, "empty handler, msg/s", results)
		}
		return err
	})
}

// run runs the consumer with the observers in its chain, and collects the metrics each second, as an exporter would.
func (o observers) run(ctx context.Context, cfg consumer.Config) error {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	if o.tracing {
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
		cfg.Middleware = append(cfg.Middleware, middleware.Tracing(&middleware.TracingConfig{TracerProvider: tracers}))
	}
	if o.metrics {
		cfg.Middleware = append(cfg.Middleware, middleware.Metrics(&middleware.MetricsConfig{MeterProvider: meters}))
	}
	c, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	if o.metrics {
		stop, err := consumermetrics.Register(c, &consumermetrics.Config{MeterProvider: meters})
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // a registration that ends cannot fail
		defer collectEachSecond(ctx, reader)()
	}
	return c.Run(ctx)
}

func collectEachSecond(ctx context.Context, reader *sdkmetric.ManualReader) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = reader.Collect(ctx, &metricdata.ResourceMetrics{}) // it fails only when ctx is done
			}
		}
	}()
	return func() { cancel(); <-done }
}
