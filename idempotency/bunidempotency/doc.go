// Package bunidempotency is an idempotency.Store on PostgreSQL or SQLite through bun. The transaction that the handler
// gets is a bun.Tx.
//
//	handler, err := idempotency.NewHandler(bunidempotency.New(db, nil), placeOrder, idempotency.HandlerConfig{Principal: tenant})
//
// What package sqlidempotency says holds here too, and what package bunstore says of drivers, and of functions that
// take a bun.IDB.
package bunidempotency
