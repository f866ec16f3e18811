// Package pgtest is what the tests of all stores on PostgreSQL share: a database for each case with the table laid out
// in each way that the stores support, and a look into it.
package pgtest
