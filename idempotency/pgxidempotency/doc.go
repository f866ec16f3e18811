// Package pgxidempotency is an idempotency.Store on PostgreSQL through pgx. The transaction that the handler gets is a
// pgx.Tx.
//
//	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), placeOrder, idempotency.HandlerConfig{Principal: tenant})
//
// It needs the table idempotency_key, which package schema prints and applies; Check tells at start what is missing.
// What package pgxstore says of transactions, of errors, of pgbouncer and of the pool's size holds here too: the
// transactions are its. The first answer to a key takes four round trips beside those of the handler, a replay three.
package pgxidempotency
