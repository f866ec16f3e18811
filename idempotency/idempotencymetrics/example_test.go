package idempotencymetrics_test

import (
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
)

// The requests of a handler are counted by what became of them.
func Example() {
	orders := func(store idempotency.Store[pgx.Tx], placeOrder idempotency.TxHandler[pgx.Tx], principal func(*http.Request) (string, error)) (http.Handler, error) {
		count, err := idempotencymetrics.OnAnswer(nil)
		if err != nil {
			return nil, err
		}
		return idempotency.NewHandler(store, placeOrder, idempotency.HandlerConfig{Principal: principal, OnAnswer: count})
	}
	_ = orders
	// Output:
}
