package pgxoutbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// The event is there if the transaction is committed, and not otherwise.
func ExampleWriter_Write() {
	events := pgxoutbox.NewWriter(nil)
	// confirm is called within the transaction of a request, or of a handler.
	confirm := func(ctx context.Context, tx pgx.Tx, orderID string, body []byte) error {
		if _, err := tx.Exec(ctx, "update orders set state = 'confirmed' where id = $1", orderID); err != nil {
			return err
		}
		return events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
	}
	_ = confirm // the function of a handler or of a request
	fmt.Println("a Listener hears of it on the channel", pgxoutbox.DefaultChannel)
	// Output: a Listener hears of it on the channel einmal_outbox
}
