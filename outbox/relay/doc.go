// Package relay sends to Kafka what the writers of package outbox have written: each event that was committed at
// least once, in the order of its key.
//
//	r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(pool), Brokers: brokers})
//	err = r.Run(ctx)
//
// Any number of relays, in the services that write or beside them, share the rows of a table. Package relaymetrics
// measures one by its Status, and package outboxtest is the contract that it keeps with an outbox.Database. The
// document docs/outbox.md says how it works, and what it does not promise.
package relay
