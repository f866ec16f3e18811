// Package bunstore is a dedupstore.Store on PostgreSQL or SQLite through bun. The transaction that the function gets is
// a bun.Tx.
//
//	store := bunstore.New(db, nil)
//	ran, err := store.Once(ctx, dedupstore.Key{Consumer: "billing", Event: id},
//		func(ctx context.Context, tx bun.Tx) error {
//			_, err := tx.NewInsert().Model(&charge).Exec(ctx)
//			return err
//		})
//
// What package sqlstore says holds here too. bun's query hooks see BEGIN, COMMIT and ROLLBACK and what the function
// does, not the record.
//
// # Write with tx
//
// A write through the *bun.DB is outside of the transaction: it stays when the transaction is rolled back, and happens
// again when the event comes again. Functions that take a bun.IDB accept both, and cannot tell: let those that write
// take a bun.Tx.
//
// # Drivers
//
// bun writes the values into the texts, so that each text is another one. pgx, in its default mode, prepares each and
// keeps 512 of them in every session, which takes twice the time and the server's memory: Check refuses it. Set
// default_query_exec_mode=exec in the URL (or simple_protocol, which is necessary behind some poolers). bun's own
// pgdriver prepares nothing. It does not notice that a context is cancelled while it waits for the server, only its
// deadline: a call that waits for a key returns after LockTimeout.
package bunstore
