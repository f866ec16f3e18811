package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// Dedup runs a plain function in the transaction that records the event: a second delivery changes nothing.
func ExampleDedup() {
	type order struct{ Cents int }
	total := 0
	charge := func(_ context.Context, tx *memstore.Tx, o order) error { // with PostgreSQL: tx pgx.Tx
		tx.OnCommit(func() { total += o.Cents })
		return nil
	}
	h := middleware.Dedup(memstore.New(), consumer.JSONTx(charge), nil) // with PostgreSQL: pgxstore.New(pool, nil)

	for range 2 {
		msg := &consumer.Message{Consumer: "billing/orders", EventID: "order-1", Value: []byte(`{"Cents": 700}`)}
		err := h.Handle(context.Background(), msg)
		fmt.Println("duplicate:", msg.Result.Duplicate, "error:", err, "total:", total)
	}
	// Output:
	// duplicate: false error: <nil> total: 700
	// duplicate: true error: <nil> total: 700
}

// Retry asks the runner for another attempt, and gives up after the last one.
func ExampleRetry() {
	attempts := 0
	unreachable := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		attempts++
		return errors.New("connection refused")
	})
	h := middleware.Retry(3, nil)(unreachable)

	for attempt := 1; ; attempt++ { // what the runner does, without the pauses
		err := h.Handle(context.Background(), &consumer.Message{Attempt: attempt})
		if _, again := consumer.Delay(err); !again {
			fmt.Println(attempts, "attempts:", err)
			break
		}
	}
	// Output: 3 attempts: gave up after 3 attempts: connection refused
}

// Permanent passes Retry at once.
func ExampleRetry_permanent() {
	h := middleware.Retry(3, nil)(consumer.JSON(func(context.Context, struct{ Cents int }) error { return nil }))
	err := h.Handle(context.Background(), &consumer.Message{Attempt: 1, Value: []byte(`{"Cents":"a lot"}`)})
	fmt.Println(consumer.IsPermanent(err), err)
	// Output: true decode struct { Cents int }, field Cents: a JSON string does not fit into a Go int (after 16 bytes)
}

// Recover makes an error of a panic, so that Retry sees it.
func ExampleRecover() {
	h := middleware.Recover()(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		panic("no price for tea")
	}))
	fmt.Println(h.Handle(context.Background(), &consumer.Message{}))
	// Output: panic: no price for tea
}

// Timeout gives each attempt its time. A handler that looks at its context ends with it.
func ExampleTimeout() {
	slow := consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
		<-ctx.Done() // a query that takes for ever
		return ctx.Err()
	})
	h := middleware.Timeout(time.Millisecond)(slow)
	err := h.Handle(context.Background(), &consumer.Message{})
	fmt.Println(errors.Is(err, middleware.ErrTimeout), err)
	// Output: true the attempt took too long: more than 1ms: context deadline exceeded
}

// Logging writes a line about each attempt that is worth one.
func ExampleLogging() {
	logger := slog.New(slog.NewTextHandler(os.Stdout,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "einmal.duration_seconds" || a.Key == "einmal.delay_seconds" {
				return slog.Attr{} // differ each time
			}
			return a
		}}))
	h := middleware.Logging(logger, nil)(middleware.Retry(5, nil)(
		consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return errors.New("no stock") })))
	_ = h.Handle(context.Background(), &consumer.Message{
		Topic: "orders", Partition: 3, Offset: 42, Group: "billing", Consumer: "billing/orders", Attempt: 1,
	})
	// Output: level=WARN msg="einmal: an attempt has failed, another one follows" messaging.destination.name=orders messaging.destination.partition.id=3 messaging.kafka.offset=42 messaging.consumer.group.name=billing einmal.consumer=billing/orders einmal.outcome=retry einmal.attempt=1 error.type=*errors.errorString error="no stock"
}

// Tracing links each attempt's span to the span that produced the record.
func ExampleTracing() {
	spans := tracetest.NewInMemoryExporter() // yours exports to a collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	h := middleware.Tracing(&middleware.TracingConfig{TracerProvider: provider})(
		consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }))
	_ = h.Handle(context.Background(), &consumer.Message{
		Topic: "orders", Attempt: 1,
		Headers: []consumer.Header{{Key: "traceparent",
			Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}},
	})
	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name, "linked to", span.Links[0].SpanContext.SpanID())
	}
	// Output: consumer process orders linked to b7ad6b7169203331
}
