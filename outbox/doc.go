// Package outbox has services write their events for Kafka in database transactions: if the transaction is committed,
// each event reaches Kafka at least once, in the order of its key; if it is rolled back, none does.
//
//	order + event in one transaction ▸ outbox_event ▸ Relay ▸ Kafka ▸ einmal's consumer, which knows the event's id
//
// A handler, or whoever has a transaction, writes the event in it; a relay sends it:
//
//	events := pgxoutbox.NewWriter(nil)
//	err := events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
//
//	r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(pool), Brokers: brokers})
//	err = r.Run(ctx)
//
// Packages pgxoutbox, sqloutbox and bunoutbox have the writers. They know no Kafka: a service that only writes events
// compiles no client of it. A Relay of package relay, in the service or beside it, in any number of processes, sends
// what they wrote. An Operator looks at the rows and repairs them. The document docs/outbox.md says how it works, and
// what it does not promise.
package outbox
