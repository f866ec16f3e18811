package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// A handler says that no attempt will help. The text stays, and so does what errors.Is finds.
func ExamplePermanent() {
	errNoSuchOrder := errors.New("no such order")
	charge := func(context.Context, Order) error {
		return consumer.Permanent(fmt.Errorf("charge A-3: %w", errNoSuchOrder))
	}
	err := charge(context.Background(), Order{})
	fmt.Println(err)
	fmt.Println(consumer.IsPermanent(err), errors.Is(err, errNoSuchOrder))
	// Output:
	// charge A-3: no such order
	// true true
}

// A handler knows when another attempt makes sense. The runner parks the message until then; no goroutine waits.
func ExampleRetryAfter() {
	err := consumer.RetryAfter(30*time.Second, errors.New("the payment provider is closed for maintenance"))
	delay, ok := consumer.Delay(fmt.Errorf("charge A-4: %w", err))
	fmt.Println(delay, ok)
	// Output: 30s true
}

// A middleware of the user's acts on what Retry returns as its last word.
func ExampleGaveUp() {
	alert := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			err := next.Handle(ctx, msg)
			var gaveUp *consumer.GaveUp
			if consumer.IsGaveUp(err) && errors.As(err, &gaveUp) {
				fmt.Printf("%s@%d failed %d times, the last time: %v\n", msg.Topic, msg.Offset, gaveUp.Attempts, gaveUp.Err)
			}
			return err
		})
	}
	chain := alert(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		return &consumer.GaveUp{Attempts: 5, Err: errors.New("card declined")}
	}))
	fmt.Println(chain.Handle(context.Background(), &consumer.Message{Topic: "orders", Offset: 7}))
	// Output:
	// orders@7 failed 5 times, the last time: card declined
	// gave up after 5 attempts: card declined
}

// New tells everything that is wrong with a configuration at once.
func ExampleNew() {
	_, err := consumer.New(consumer.Config{
		Brokers: []string{"kafka://localhost:9092"},
		Topics:  map[string]consumer.Topic{"orders": {}},
	})
	fmt.Println(err)
	// Output:
	// einmal: Config.Brokers[0]: "kafka://localhost:9092" is not an address: write "host:port", without a scheme
	// einmal: Config.Group: is empty: name the consumer group, the same in every process of the service
	// einmal: Config.Topics["orders"]: Handler is missing: set Topic.Handler
}
