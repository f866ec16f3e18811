package middleware_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

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
		var prices map[string]int
		prices["tea"]++
		return nil
	}))
	fmt.Println(h.Handle(context.Background(), &consumer.Message{}))
	// Output: panic: assignment to entry in nil map
}
