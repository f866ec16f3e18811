// Package sqloutbox is the outbox on PostgreSQL by database/sql, with whatever driver: a Writer for *sql.Tx and the
// Database of the relay.
//
//	events := sqloutbox.NewWriter(nil)
//	...
//	err := events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
package sqloutbox
