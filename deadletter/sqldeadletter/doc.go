// Package sqldeadletter keeps dead letters in a table of PostgreSQL or SQLite, by database/sql. Its SQL is the
// component schema.DeadLetter.
//
//	dead := sqldeadletter.New(db, schema.Postgres, nil)
//	... middleware.DeadLetter(sqlstore.New(db, schema.Postgres, nil), dead, nil) ...
package sqldeadletter
