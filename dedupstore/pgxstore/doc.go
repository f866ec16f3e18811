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
// # The record
//
// The record is an upsert that counts redeliveries in the column duplicates and locks the row. Where it cannot be used,
// because the table is partitioned or the database has no xmax, it is an insert ON CONFLICT DO NOTHING; Check finds out
// which, or else the first call of Once, by recording a key of its own twice in a transaction that it rolls back.
// Config.DoNothing asks for the second form.
//
// DO NOTHING is cheaper for a redelivery: it writes nothing, and takes no lock. The price: it has nothing to commit, so
// it does not wait for a synchronous replica. Where the first delivery's COMMIT was cut short while it waited for the
// replica, the redelivery finds the row, is taken for done, and a failover may still lose the row and the effect. With
// the upsert, the redelivery's own COMMIT waits. Without synchronous replication there is no difference in safety. With
// it, see WatchCommits too.
//
// A partitioned table needs its primary key on exactly (event_id, consumer_id), so it can be partitioned by hash, or,
// if every id is a UUIDv7, by ranges of event_id, of which old ones are dropped. The event of a dropped partition is
// refused with dedupstore.ErrTooOld.
//
// # Round trips
//
// BEGIN, the time-outs and the record are one round trip, the function's statements are its own, COMMIT is one: three
// for a function of one statement, two for a duplicate. That holds in pgx's modes exec, simple protocol and, once a
// connection has seen the statements, in the two that cache; describe-exec needs one more each time. A pool adds one
// when it probes a connection that was idle for a second (pgxpool.Config.ShouldPing).
//
// # Transactions
//
// The isolation level is READ COMMITTED, whatever the database's default is: under a stricter one an ordinary duplicate
// is a serialization failure.
//
// The function must not end the transaction. Commit and Rollback of its tx are refused, and a COMMIT or ROLLBACK as
// text is noticed afterwards, even if the text begins another transaction; both fail the call with
// dedupstore.ErrTxEnded. Savepoints, by tx.Begin or as text, are the function's own affair.
//
// # Errors
//
// dedupstore.ClassOf tells what an error asks for. A connection to a server that has become a replica is given up, so
// that the pool looks for the primary: name several hosts, and target_session_attrs=read-write, in the pool's URL.
//
// # pgbouncer
//
// Behind a pooler in transaction mode, use pgx's mode exec (default_query_exec_mode=exec in the URL), or
// simple_protocol; the modes that cache mix up the sessions' prepared statements. A search_path in the URL is not
// taken: set Config.Schema.
//
// # Concurrency
//
// A call holds one connection of the pool from its begin to its end. A call for a key that another transaction holds
// waits for it with its connection, so a pool that is smaller than the number of callers only makes them queue.
package pgxstore
