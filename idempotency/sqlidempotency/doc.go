// Package sqlidempotency is an idempotency.Store on PostgreSQL or SQLite through database/sql. The transaction that the
// handler gets is a *sql.Tx.
//
//	handler, err := idempotency.NewHandler(sqlidempotency.New(db, schema.Postgres, nil), placeOrder, idempotency.HandlerConfig{Principal: tenant})
//
// It needs the table idempotency_key, which package schema prints and applies; Check tells at start what is missing.
// What package sqlstore says of transactions, of drivers and of errors holds here too: the transactions are its.
//
// # SQLite
//
// One transaction writes at a time, so a request of a key that is being handled waits, as all others do, and is then
// answered with what the first one was. It waits as long as busy_timeout says, which the connections must set.
package sqlidempotency
