package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
)

func ExampleKey() {
	fmt.Println(idempotency.Key("refund", "order-17", "2"))
	// Output: 7a278392-7729-8606-b748-4553597f9e6a
}

// In a handler the context has what the key is made of.
func ExampleKeyFor() {
	ctx := dedupstore.WithKey(context.Background(), dedupstore.Key{Consumer: "billing/orders", Event: "4711"}) // as Dedup does
	key, err := idempotency.KeyFor(ctx, "charge")
	fmt.Println(key, err)
	// Output: 7bcc017e-31fa-88d6-b104-4bbbb49c3473 <nil>
}

// One client serves all handlers of a service.
var provider = &http.Client{Transport: idempotency.NewTransport(nil, &idempotency.TransportConfig{RequireKey: true})}

type chargedOrder struct{ ID, Body string }

// callProvider is a handler that charges an order at a payment provider.
func callProvider(ctx context.Context, tx pgx.Tx, order chargedOrder) error {
	if _, err := tx.Exec(ctx, "insert into charge (order_id) values ($1)", order.ID); err != nil {
		return err
	}
	key, err := idempotency.KeyFor(ctx, "charge")
	if err != nil {
		return err
	}
	ctx = idempotency.WithKey(ctx, key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://provider.example/charges",
		strings.NewReader(order.Body))
	if err != nil {
		return err
	}
	res, err := provider.Do(req)
	if err != nil {
		return err // rolled back: the next delivery calls with the same key
	}
	defer res.Body.Close()
	switch after, _ := idempotency.RetryAfter(res); {
	case res.StatusCode < http.StatusMultipleChoices:
		return nil
	case idempotency.Again(res):
		return consumer.RetryAfter(max(after, time.Second), fmt.Errorf("the provider answered %s", res.Status))
	default:
		return consumer.Permanent(fmt.Errorf("the provider refused the charge: %s", res.Status))
	}
}

func ExampleTransport() {
	_ = consumer.JSONTx(callProvider) // for middleware.Dedup
	// Output:
}
