package bunoutbox_test

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/bunoutbox"
)

// The event is there if the transaction is committed, and not otherwise.
func ExampleWriter_Write() {
	events := bunoutbox.NewWriter(nil)
	// confirm is called within the transaction of a request, or of a handler.
	confirm := func(ctx context.Context, tx bun.Tx, orderID string, body []byte) error {
		if _, err := tx.NewUpdate().Table("orders").Set("state = 'confirmed'").Where("id = ?",
			orderID).Exec(ctx); err != nil {
			return err
		}
		return events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
	}
	_ = confirm
	// Output:
}
