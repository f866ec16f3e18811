// Package servertest holds the tests of idempotency.Handler, on PostgreSQL by pgx: what a client gets, what stays in
// the database, and processes that end in the midst of a request.
package servertest
