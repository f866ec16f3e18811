// Package pgxoutbox is the outbox on PostgreSQL by pgx: a Writer for pgx.Tx, the Database of the relay, and
// notifications.
//
//	events := pgxoutbox.NewWriter(nil)
//	err := events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
package pgxoutbox
