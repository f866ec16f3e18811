// Package pgxoutbox is the outbox on PostgreSQL by pgx: a Writer for pgx.Tx, the Database of the relay, and notifications.
package pgxoutbox
