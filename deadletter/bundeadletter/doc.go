// Package bundeadletter keeps dead letters in a table of PostgreSQL or SQLite, by bun. Its SQL is the component
// schema.DeadLetter.
//
//	dead := bundeadletter.New(db, nil)
//	... middleware.DeadLetter(bunstore.New(db, nil), dead, nil) ...
package bundeadletter
