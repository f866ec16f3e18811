package outbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// A service writes its event in the transaction of its data, and a relay sends what was committed.
func Example() {
	events := pgxoutbox.NewWriter(nil)
	confirm := func(ctx context.Context, tx pgx.Tx, orderID string, body []byte) error {
		if _, err := tx.Exec(ctx, "update orders set state = 'confirmed' where id = $1", orderID); err != nil {
			return err
		}
		return events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
	}
	// send runs in a goroutine of the service, or in a process of its own.
	send := func(ctx context.Context, pool *pgxpool.Pool, brokers []string) error {
		r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(pool), Brokers: brokers})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	_, _ = confirm, send
	fmt.Println("an event's id, unless it brings one, is a UUID of", len(outbox.NewID()), "bytes")
	// Output: an event's id, unless it brings one, is a UUID of 36 bytes
}
