// Package handlertest tests a service's own handlers for repetition: it delivers messages again after every step at
// which a transaction can fail, and says in words what was doubled or lost.
//
//	func TestChargeOnce(t *testing.T) {
//		handlertest.Run(t, func(t testing.TB) handlertest.Harness[pgx.Tx] {
//			pool := ... // a database with the service's tables, empty
//			return handlertest.Harness[pgx.Tx]{
//				Store: pgxstore.New(pool, nil),
//				Handler: func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
//					return middleware.Dedup(store, consumer.JSONTx(charge), nil)
//				},
//				Messages: []*consumer.Message{consumertest.JSON("orders", "e1", order{ID: "o1", Cents: 500})},
//				Effects:  func(ctx context.Context) ([]string, error) { ... }, // a line for each row of charge
//			}
//		})
//	}
//
// A case delivers each message once with a failure, and again until it has taken effect, as the runner does; then the
// effects must be those of exactly one delivery. The steps are the Points of a Store: before the record, behind it, in
// the handler, behind it, at COMMIT, and after COMMIT, whose answer is lost. A handler that calls the store several
// times, a Sequence, fails at each step of each call. Further cases deliver without a failure: twice in a row, all
// again after a restart, and to two owners at the same time.
//
// A store that puts several messages into one transaction is tested so, too: all messages in one transaction, with one
// that fails at each step, and with another one that fails beside them.
//
// What the suite cannot see is what Effects does not show. Calls of other services belong into it, by a fake service
// that counts them per idempotency key.
//
// A Store can be used alone, too, for a test that fails a handler at one step and looks into the rest itself.
package handlertest
