// Package record is what the stores on SQL databases share: the statements that record an event, in each dialect, and
// what the answers to them mean. It sends nothing by itself: a store does, through its driver, and asks here what to
// send and what to make of the answer.
//
// # Two forms of the record
//
// Upsert inserts the row, or counts a redelivery in it and so locks it. It knows an insertion by xmax in PostgreSQL, by
// the counter in SQLite. A redelivery's COMMIT writes, so it waits for a synchronous replica as the first one's did.
//
// DoNothing inserts the row or does nothing. It works where xmax cannot be read: in partitioned tables, and in
// databases that speak PostgreSQL's protocol and have no xmax. It writes nothing for a redelivery, which is cheaper,
// and its weakness: where the first COMMIT was cut short while it waited for a synchronous replica, the redelivery sees
// the row, finds nothing to wait for, and is taken for done; a failover may still lose the row, and the effect with it.
package record
