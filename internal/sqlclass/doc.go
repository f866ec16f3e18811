// Package sqlclass says whose fault an error of a SQL database is, whatever the driver: one answer for the statements
// of the stores, of the tables of dead letters, and of the users' functions.
package sqlclass
