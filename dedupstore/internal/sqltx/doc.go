// Package sqltx is a dedupstore.Store on database/sql, for any transaction that stands on a *sql.Tx. Packages sqlstore
// and bunstore are made of it.
//
// database/sql takes no context for COMMIT, and rolls a transaction back when the context with which it was begun ends.
// So a transaction is begun on a context of its own, which only the store ends; and BEGIN, COMMIT and ROLLBACK run in
// goroutines of their own, which a call leaves behind at its deadline, with the connection and the place in the pool,
// until the driver gives up.
package sqltx
