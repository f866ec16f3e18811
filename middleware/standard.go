package middleware

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// StandardConfig is what can be chosen about Standard. Nil means all defaults.
type StandardConfig[Tx any] struct {
	// Attempts are those of Retry, see there. Defaults to 5.
	Attempts int
	// Retry has the pauses between them. Nil means Retry's defaults.
	Retry *RetryConfig
	// Timeout is the time that the handler has for an attempt, see the middleware Timeout. Defaults to none but
	// Topic.ProcessingLimit: what is right depends on the handler.
	Timeout time.Duration

	// DeadLetters is the table for messages that are given up, pgxdeadletter.New(pool, nil) for example. Defaults to none:
	// Topic.OnFailure decides about them.
	DeadLetters deadletter.Writer[Tx]
	// DeadLetter is the configuration of the link that writes there. Nil means DeadLetter's defaults.
	DeadLetter *DeadLetterConfig
	// CrashLoop counts messages whose handling ends the process, see there: pass one that all chains of the process share.
	// Defaults to none.
	CrashLoop consumer.Middleware

	// Dedup is the configuration of the innermost link, its window for example. Nil means Dedup's defaults.
	Dedup *DedupConfig

	// Tracing is the configuration of the outermost link, whether a message's spans stand in its producer's trace for
	// example. Its TracerProvider defaults to the one below. Nil means Tracing's defaults.
	Tracing *TracingConfig
	// Logging is the configuration of Logging. Nil means its defaults.
	Logging *LoggingConfig

	// Logger gets the lines of Logging. Defaults to slog.Default().
	Logger *slog.Logger
	// TracerProvider and MeterProvider get the spans and the metrics. Default to OpenTelemetry's global ones, which do
	// nothing until they are set.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

const defaultAttempts = 5

// Chain makes the chains of a service's topics: the links in their one legal order around a Dedup on one store. It is
// safe for concurrent use.
type Chain[Tx any] struct {
	store dedupstore.Store[Tx]
	dedup *DedupConfig
	links []consumer.Middleware
}

// Standard returns the chain that most services want: Tracing, Metrics, Logging, DeadLetter and CrashLoop where they
// are configured, Retry, Recover, Timeout where it is configured, and Dedup, in this order from outside, with the store
// said once. For anything else the links stand by themselves.
//
//	chain := middleware.Standard(store, nil)
//	Topics: map[string]consumer.Topic{"orders.confirmed": chain.Topic(consumer.JSONTx(charge))}
func Standard[Tx any](store dedupstore.Store[Tx], cfg *StandardConfig[Tx]) *Chain[Tx] {
	if cfg == nil {
		cfg = &StandardConfig[Tx]{}
	}
	c := &Chain[Tx]{store: store, dedup: cfg.Dedup}
	tracing := TracingConfig{}
	if cfg.Tracing != nil {
		tracing = *cfg.Tracing
	}
	if tracing.TracerProvider == nil {
		tracing.TracerProvider = cfg.TracerProvider
	}
	c.links = append(c.links, Tracing(&tracing), Metrics(&MetricsConfig{MeterProvider: cfg.MeterProvider}),
		Logging(cfg.Logger, cfg.Logging))
	if cfg.DeadLetters != nil {
		dead := DeadLetterConfig{}
		if cfg.DeadLetter != nil {
			dead = *cfg.DeadLetter
		}
		if dead.Logger == nil {
			dead.Logger = cfg.Logger
		}
		c.links = append(c.links, DeadLetter(store, cfg.DeadLetters, &dead))
	}
	if cfg.CrashLoop != nil {
		c.links = append(c.links, cfg.CrashLoop)
	}
	attempts := cfg.Attempts
	if attempts == 0 {
		attempts = defaultAttempts
	}
	c.links = append(c.links, Retry(attempts, cfg.Retry), Recover())
	if cfg.Timeout != 0 {
		c.links = append(c.links, Timeout(cfg.Timeout))
	}
	return c
}

// Topic returns a topic that is handled by h. Its other fields are the caller's to set.
func (c *Chain[Tx]) Topic(h consumer.TxHandler[Tx]) consumer.Topic {
	return consumer.Topic{Middleware: c.Middleware(), Handler: c.Dedup(h)}
}

// Middleware returns the links around Dedup, for a topic whose Handler is a Route.
func (c *Chain[Tx]) Middleware() []consumer.Middleware {
	return append([]consumer.Middleware(nil), c.links...)
}

// Dedup returns the innermost link, for a Route.
func (c *Chain[Tx]) Dedup(h consumer.TxHandler[Tx]) consumer.Handler {
	return Dedup(c.store, h, c.dedup)
}
