package sqloutbox_test

import (
	"context"
	"database/sql"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
)

// The event is there if the transaction is committed, and not otherwise.
func ExampleWriter_Write() {
	events := sqloutbox.NewWriter(nil)
	// confirm is called within the transaction of a request, or of a handler.
	confirm := func(ctx context.Context, tx *sql.Tx, orderID string, body []byte) error {
		if _, err := tx.ExecContext(ctx, "update orders set state = 'confirmed' where id = $1", orderID); err != nil {
			return err
		}
		return events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
	}
	_ = confirm
	// Output:
}
