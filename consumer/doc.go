// Package consumer runs message handlers as a member of a Kafka consumer group, and lets an offset move only when the
// messages before it have taken effect.
//
// A handler is a plain function. Together with middleware.Dedup and a store of package dedupstore it runs in a database
// transaction that also records the event, so that a message that is delivered twice takes effect once:
//
//	err := consumer.Run(ctx, consumer.Config{
//		Brokers: []string{"localhost:9092"},
//		Group:   "billing-service",
//		Topics: map[string]consumer.Topic{
//			"orders.confirmed": {
//				Middleware: []consumer.Middleware{middleware.Retry(5, nil), middleware.Recover()},
//				Handler:    middleware.Dedup(pgxstore.New(pool, nil), consumer.JSONTx(charge), nil),
//			},
//		},
//	})
//
// # The life of a message
//
//	Kafka ──fetch──▶ pump ──▶ queue ──▶ worker ──▶ chain: Tracing ▸ Logging ▸ Retry ▸ Recover ▸ Timeout ▸ Dedup
//	                           ▲                     │                                              │
//	                           │ parked until due    │ error                     BEGIN, record, handler, COMMIT
//	                           └─────────────────────┤
//	                                                 │ nil
//	                                                 ▼
//	             commit ◀── mark ◀── tracker: the end of the contiguous prefix of finished messages
//
// The pump reads and never waits for a handler. The queue decides which message may run next: in the order of the
// partition, one at a time. A chain that returns nil has finished its message. An error leaves it open: RetryAfter says
// when to try again; what to do with any other error is Topic.OnFailure's to say. A message is never skipped.
//
// # The life of a partition
//
//	assigned ──▶ claim (own queue, own tracker) ──▶ revoked or shutdown
//	                                                   │ no message starts any more
//	                                                   │ what runs may finish: DrainTimeout, on a rebalance its own budget
//	                                                   │ what still runs is cancelled, and rolls back
//	                                                   │ what has finished is marked, then the claim is fenced
//	                                                   ▼
//	                                                 commit, let go
//
// A claim is an epoch: nothing that belongs to it moves an offset after its end, even if the same partition comes back.
//
// # Two owners
//
// A member that stalls and its successor can hold the same partition for a while. No client can rule that out.
// Correctness rests on the record in the database, never on who owns what.
package consumer
