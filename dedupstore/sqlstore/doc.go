// Package sqlstore is a dedupstore.Store on PostgreSQL or SQLite through database/sql. The transaction that the
// function gets is a *sql.Tx: the one that sqlc, sqlx, ent, GORM and plain database/sql work with.
//
//	store := sqlstore.New(db, schema.Postgres, nil)
//	ran, err := store.Once(ctx, dedupstore.Key{Consumer: "billing", Event: id},
//		func(ctx context.Context, tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, "insert into charge (order_id) values ($1)", orderID)
//			return err
//		})
//
// It needs the table processed_event, which package schema prints and applies; Check tells at start what is missing.
//
// What package pgxstore says of the two forms of the record, of partitioned tables, of errors and of pgbouncer holds
// here too.
//
// # Round trips
//
// BEGIN, the record with its time-outs, and COMMIT are one round trip each, and so is one before COMMIT that finds out
// whether the function ended the transaction, or a statement in it failed: five for a function of one statement, three
// for a duplicate. pgxstore needs three and two.
//
// # The transaction
//
// The function must not end it: no tx.Commit, tx.Rollback, COMMIT or ROLLBACK. Both ways are noticed afterwards, and
// fail the call with dedupstore.ErrTxEnded; what was committed by then stays committed. Savepoints are the function's
// own affair.
//
// In PostgreSQL the isolation level is READ COMMITTED, whatever the database's default is.
//
// Once does not return before the function has, and not before COMMIT has, or Config.CommitTimeout has passed.
// database/sql cannot cancel a COMMIT: a driver without a time-out of its own keeps its connection until the operating
// system gives it up. Drivers that heed the context with which the transaction was begun, as pgx does, are quicker.
//
// A database with synchronous replicas answers a COMMIT whose wait for them an administrator cancels by
// pg_cancel_backend with success. pgxstore can see the warning that comes with it (WatchCommits), database/sql cannot:
// end such a session by pg_terminate_backend.
//
// # SQLite
//
// A deferred transaction whose first statement is the record: it takes SQLite's write lock, and waits for it as long as
// the connections' busy_timeout says. All connections need one, which Check looks after; with modernc.org/sqlite it is
// _pragma=busy_timeout(5000) in the DSN, beside _pragma=journal_mode(wal). The lock is the whole database's: functions
// run one after the other, and one that hangs holds up all others, whose calls fail with dedupstore.ErrLocked. Nothing
// ends it but its process. SQLite runs the statements of the function one by one: one that fails takes back itself
// only, and if the function returns nil, the rest is committed.
package sqlstore
