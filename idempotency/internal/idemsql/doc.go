// Package idemsql is an idempotency.Store on a dedup store's transactions, for any driver: the statements, for each
// dialect, and what their answers mean. The transaction itself, its time-outs and what its errors mean are the dedup
// store's.
//
// # How one request excludes another
//
// In PostgreSQL, an advisory lock of the transaction is tried before the answer is looked for, so that a request that
// comes while the first one runs is told at once. The lock is a statement of its own before the look, which therefore
// sees what the lock's last holder has committed. It is not what correctness rests on: the answer is inserted at the
// end, and an answer that is there by then fails it, and rolls back. A stored answer is found without the lock, so that
// replays do not exclude each other.
//
// In SQLite, where one transaction writes at a time, the first statement takes that place and waits for it.
package idemsql
