// Package sqloutbox is the outbox on PostgreSQL by database/sql, with whatever driver: a Writer for *sql.Tx and the
// Database of the relay.
package sqloutbox
