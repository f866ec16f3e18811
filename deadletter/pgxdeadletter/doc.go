// Package pgxdeadletter keeps dead letters in a table of PostgreSQL, by pgx. Its SQL is the component
// schema.DeadLetter.
//
//	dead := pgxdeadletter.New(pool, nil)
//	... middleware.DeadLetter(pgxstore.New(pool, nil), dead, nil) ...
package pgxdeadletter
