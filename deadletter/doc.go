// Package deadletter is the contract between the link that gives a message up (middleware.DeadLetter) and the table
// that keeps it: a Record, the tables' interfaces, and Redrive, which runs a handler once more on what was kept.
//
//	the handler fails for good            an operator has repaired the cause
//	┌───────────────────────────────┐     ┌──────────────────────────────────────┐
//	│ BEGIN                         │     │ BEGIN                                │
//	│ record in processed_event     │     │ take the row out of dead_message     │
//	│ row in dead_message           │     │ the handler, on the same transaction │
//	│ COMMIT                        │     │ COMMIT                               │
//	└───────────────────────────────┘     └──────────────────────────────────────┘
//
// The record in processed_event stands for what became of the event: first for the row in dead_message, and once that
// was redriven for the effect. It must therefore be kept for as long as the dead letter is, and as long as the message
// can be delivered again.
//
//	dead := pgxdeadletter.New(pool, nil)
//	chain := middleware.Standard(store, &middleware.StandardConfig[pgx.Tx]{DeadLetters: dead})
//	...
//	report, err := deadletter.Redrive(ctx, store, dead, consumer.JSONTx(charge), &deadletter.RedriveConfig{
//		Filter: deadletter.Filter{Consumer: "billing-service/orders.confirmed"},
//	})
//
// Tables are packages of their own: pgxdeadletter, sqldeadletter and bundeadletter.
package deadletter
