package handlertest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/middleware/handlertest"
)

// One failure by hand: the handler has run when its transaction is rolled back, and the message comes again.
func ExampleStore() {
	charged, called := 0, 0
	store := handlertest.NewStore(memstore.New())
	h := middleware.Dedup(store, func(_ context.Context, tx *memstore.Tx, _ *consumer.Message) error {
		called++                          // outside of the transaction
		tx.OnCommit(func() { charged++ }) // in it
		return nil
	}, nil)
	msg := consumer.Message{Consumer: "billing/orders", EventID: "e1"}

	store.Fail(handlertest.AfterHandler, 1)
	first := msg
	fmt.Println(errors.Is(h.Handle(context.Background(), &first), handlertest.ErrInjected))
	second := msg
	fmt.Println(h.Handle(context.Background(), &second))
	fmt.Println("charged", charged, "called", called)
	// Output:
	// true
	// <nil>
	// charged 1 called 2
}
