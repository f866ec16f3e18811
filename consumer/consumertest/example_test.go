package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
)

// t is the test's parameter in a test.
var t testing.TB = exampleT{}

type exampleT struct{ testing.TB }

func (exampleT) Helper()                  {}
func (exampleT) Context() context.Context { return context.Background() }

type order struct{ ID string }

// A chain is run as the runner would run it. What would be waited for is noted.
func ExampleRun() {
	var shipped []string
	ship := func(ctx context.Context, o order) error {
		if msg, _ := consumer.MessageFrom(ctx); msg.Attempt == 1 {
			return consumer.RetryAfter(5*time.Minute, errors.New("no stock"))
		}
		shipped = append(shipped, o.ID)
		return nil
	}
	topic := consumer.Topic{Handler: consumer.JSON(ship)}

	out := consumertest.Run(t, topic, consumertest.JSON("orders", "event-1", order{ID: "o-7"}))
	fmt.Println(out)
	fmt.Println(shipped, "after", out.Waited())
	// Output:
	// attempt 1: no stock; again after 5m0s
	// attempt 2: done
	// [o-7] after 5m0s
}

// Each Deliver is a delivery of its own: the second one is what a rebalance makes. This handler has no Dedup.
func ExampleChains_Deliver() {
	shipped := 0
	service := consumer.Config{
		Group: "shipping",
		Topics: map[string]consumer.Topic{
			"orders": {Handler: consumer.JSON(func(context.Context, order) error { shipped++; return nil })},
		},
	}

	chains := consumertest.New(t, service, nil)
	msg := consumertest.JSON("orders", "event-1", order{ID: "o-7"})
	chains.Deliver(t.Context(), msg)
	chains.Deliver(t.Context(), msg)
	fmt.Println("shipped", shipped, "times")
	// Output: shipped 2 times
}

// A value that cannot be decoded is a permanent error; OnFailure decides.
func ExampleOutcome() {
	topic := consumer.Topic{
		Handler:   consumer.JSON(func(context.Context, order) error { return nil }),
		OnFailure: consumer.Stop,
	}
	out := consumertest.Run(t, topic, consumertest.Message("orders", "event-1", []byte("not JSON")))
	fmt.Println(out.End, consumer.IsPermanent(out.Err))
	// Output: stopped true
}
