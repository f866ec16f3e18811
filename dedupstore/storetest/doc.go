// Package storetest is the contract of dedupstore.Store as a test suite, for the stores of this module and for those of
// others.
//
// A store's test opens a fresh database for each case and says what it can do there:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
//			pool := ... // an empty database of this test's own
//			return storetest.Harness[pgx.Tx]{
//				Store:   pgxstore.New(pool, nil),
//				Write:   ...
//				Effects: ...
//			}
//		})
//	}
//
// # The contract
//
// Each case has the number of the promise that it tests. "Effect" is what the function writes through its transaction.
//
//  1. The first call for a key runs the function once, commits its effect together with the record, and says ran. Until
//     then nobody else sees the effect. The function's context is that of the call.
//  2. Any later call for that key does not run the function, and returns false and no error.
//  3. A call waits while another transaction holds its key, and then skips if that one was committed.
//  4. It waits, and then runs the function, if that one was rolled back.
//  5. An error of the function rolls back and is returned as it is or wrapped. A later call runs.
//  6. A panic of the function rolls back and goes on, and so does runtime.Goexit. A later call runs.
//  7. If the context is done when the function returns, even if it returned nil, the call rolls back, and its error wraps
//     the context's cause. If the context is done before, the same holds, whether or not the function runs.
//  8. If a statement failed or the connection was lost in the function, and it returned nil nevertheless, nothing is
//     committed, and the call returns an error.
//  9. If the function ended the transaction, the error wraps dedupstore.ErrTxEnded, and the store records nothing itself.
//  10. One event for two consumers is two effects.
//  11. Keys that differ in one byte are different: case, blanks, length, and Unicode's ways to write the same are kept apart.
//  12. A key that Key.Validate refuses is an error that wraps dedupstore.ErrInvalidKey; the function does not run.
//  13. If the answer to COMMIT is lost, or does not come in time, the error wraps dedupstore.ErrOutcomeUnknown. Another call
//     settles it: in the end the effect is there exactly once.
//  14. An owner that hangs in its function blocks its successor only for a bounded time, and cannot commit any more once
//     its successor has gone on.
//  15. With many callers of the same keys, errors, cancellations and missed deadlines, there is one effect for each key.
//  16. An error does not repeat the event's id. This is checked in every case.
//  17. A store that implements dedupstore.Checker finds nothing wrong with the database that it runs on.
//  18. dedupstore.ClassOf tells what an error asks for: Permanent for a key that is refused and a function that ended the
//     transaction, Transient (ErrLocked) where another transaction has held the key for too long, Unavailable where the
//     connection was lost in the function, or the context ended while the call waited for the key, OutcomeUnknown as in 13.
//  19. A store that implements dedupstore.Transactor holds 5 to 9 and 13 for a transaction without a key, too.
//  20. A store that implements dedupstore.Forgetter deletes the record of a key and those of its hand-ons, no others, when the
//     transaction is committed, and not before.
package storetest
