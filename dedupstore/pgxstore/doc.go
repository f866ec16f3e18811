// Package pgxstore is a dedupstore.Store on PostgreSQL through pgx. The transaction that the function gets is a pgx.Tx.
//
//	store := pgxstore.New(pool, nil)
//	ran, err := store.Once(ctx, dedupstore.Key{Consumer: "billing", Event: id},
//		func(ctx context.Context, tx pgx.Tx) error {
//			_, err := tx.Exec(ctx, "insert into charge (order_id) values ($1)", orderID)
//			return err
//		})
//
// It needs the table processed_event, which package schema prints and applies; Check tells at start what is missing.
//
// # Round trips
//
// BEGIN, the time-outs and the record are one round trip, the function's statements are its own, COMMIT is one: three for a
// function of one statement, two for a duplicate. That holds in pgx's modes exec, simple protocol and, once a connection has
// seen the statements, in the two that cache; describe-exec needs one more each time. A pool adds one when it probes a
// connection that was idle for a second (pgxpool.Config.ShouldPing).
//
// # Transactions
//
// The isolation level is READ COMMITTED, whatever the database's default is: under a stricter one an ordinary duplicate is
// a serialization failure.
//
// The function must not end the transaction. Commit and Rollback of its tx are refused, and a COMMIT or ROLLBACK as text is
// noticed afterwards; both fail the call with dedupstore.ErrTxEnded. A text that begins another transaction after it
// (COMMIT AND CHAIN) is not noticed. Savepoints, by tx.Begin or as text, are the function's own affair.
//
// # Concurrency
//
// A call holds one connection of the pool from its begin to its end. A call for a key that another transaction holds
// waits for it with its connection, so a pool that is smaller than the number of callers only makes them queue.
package pgxstore
