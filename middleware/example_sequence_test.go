package middleware_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// Several effects of one message: each has its own record, retries and dead letter.
func ExampleSequence() {
	store := memstore.New() // with PostgreSQL: pgxstore.New(pool, nil)
	effect := func(text string) consumer.Handler {
		return middleware.Dedup(store, func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			if text == "mailed" && msg.Attempt == 1 {
				return errors.New("the mail server is away")
			}
			tx.OnCommit(func() { fmt.Println(text, "as", msg.Consumer) })
			return nil
		}, nil)
	}
	h := middleware.Sequence(
		middleware.Step{Name: "charge", Handler: effect("charged")},
		middleware.Step{Name: "mail", Handler: effect("mailed"), Middleware: []consumer.Middleware{middleware.Recover()}},
	)

	msg := &consumer.Message{Consumer: "billing/orders", EventID: "order-1"}
	err := h.Handle(context.Background(), msg)
	fmt.Println(err)
	msg.LastError = err // the runner sets it
	fmt.Println(h.Handle(context.Background(), msg))
	// Output:
	// charged as billing/orders/charge
	// step "mail": the mail server is away
	// mailed as billing/orders/mail
	// <nil>
}
