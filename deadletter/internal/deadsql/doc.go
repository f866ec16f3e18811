// Package deadsql is what all SQL tables of dead letters are made of: the statements for each dialect, and what their
// answers mean. The drivers' packages bring a Conn.
package deadsql
