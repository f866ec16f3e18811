// Package janitor deletes rows that have grown old: the records of events that no broker delivers any more, for
// example.
//
// The age of a record is no matter of housekeeping. An event whose record is gone takes effect again when it is
// delivered again, so Table.Keep must be at least as long as middleware.DedupConfig.Window, by which events that are
// older and have no record are refused. docs/retention.md has the arithmetic. Nothing is deleted unless a Table
// with a Keep is configured.
//
//	db := stdlib.OpenDB(*pool.Config().ConnConfig) // pgx; of bun take db.DB
//	defer db.Close()
//	j, err := janitor.New(db, schema.Postgres, janitor.Config{
//		Tables: []janitor.Table{{Name: "processed_event", Column: "processed_at", Keep: window, Dedup: []any{handler}}},
//	})
//	...
//	err = j.Run(ctx) // beside consumer.Run
//
// It works through database/sql, which all drivers speak, and knows a table by its name and a column of times, so that
// it serves any table. A *sql.DB of its own keeps its one connection out of the consumers' pool.
//
// # On PostgreSQL
//
// A sweep deletes in batches, each a transaction of its own: an advisory lock, a pause, one DELETE of the oldest rows
// that nobody holds (SKIP LOCKED), COMMIT. The lock belongs to the transaction and to the table: one janitor at a time
// sweeps it, whatever the number of processes; another one finds it taken and comes again later. Because no session
// holds it, it is not lost in a pool, nor left behind in a pooler in transaction mode (pgbouncer), and it ends with its
// connection. The pause stands before the DELETE, so that the lock is held while nothing else is: a redelivery never
// waits for longer than one batch takes.
//
// The column needs a B-tree index. The role needs select, update and delete on the table; update, because a row is
// locked before it is deleted. It is of type timestamptz; rows whose time has no zone (timestamp) are kept for 16 hours
// longer, whatever zone it was written in, and other types are refused. What time it is, the server says.
// Table.Partitions drops partitions instead of deleting rows.
//
// # On SQLite
//
// The same, without a lock: SQLite lets one write at a time, and a batch is one statement. The column must hold text in
// UTC, best in the form of strftime('%Y-%m-%dT%H:%M:%fZ'), as processed_event's does; that of datetime('now') is
// compared rightly too. Where it has numbers, or its default is not the present time in UTC, the sweep fails and says
// so.
package janitor
