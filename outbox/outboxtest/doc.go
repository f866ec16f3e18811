// Package outboxtest is the contract of the outbox's relay as a test suite, for each outbox.Database and both modes,
// on PostgreSQL and a Kafka that speaks the real protocol.
//
//  1. What was committed arrives, every byte of it, event-id first; null stays null.
//  2. What was rolled back never arrives. A row that becomes visible after rows with greater numbers arrives too.
//  3. The events of a key arrive in the order in which their writers committed, with several relays, after repetitions are taken out.
//  4. A row that can never be sent blocks its key and nothing else, and is visible.
//  5. While Kafka is away, rows are not blamed: attempts stay as they are, and all arrive when it is back.
//  6. When connections break in the middle of batches, what is sent twice comes after all that stands before it in its key.
//  7. A relay whose context ends finishes what it has begun, and leaves nothing claimed.
//  8. A row that somebody else has locked holds up its key and nothing else.
//  9. A relay of the other mode is refused.
//  10. A wake-up is followed by the rows at once.
//
// The test of a Database is one function:
//
//	for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
//		t.Run(string(mode), func(t *testing.T) { outboxtest.Run(t, mode, open) })
//	}
package outboxtest
