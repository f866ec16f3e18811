// Package sqlstate reads the code out of an error of PostgreSQL, whatever the driver.
package sqlstate

import "errors"

// Of returns the SQLSTATE of a server's answer, or "" if err is none. It knows pgx, bun's pgdriver, and drivers that do
// as one of them.
func Of(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	var fields interface{ Field(k byte) string }
	if errors.As(err, &fields) {
		return fields.Field('C')
	}
	return ""
}

// FailedTransaction is the SQLSTATE of any statement in a transaction in which another one has failed.
const FailedTransaction = "25P02"
