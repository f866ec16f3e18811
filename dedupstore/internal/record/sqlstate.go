package record

import (
	"strings"

	"github.com/einmal-go/einmal/internal/sqlstate"
)

// The SQLSTATEs that mean something else for the store's own statements, or that it says more about.
const (
	codeNotSupported      = "0A000"
	codeUniqueViolation   = "23505"
	codeCheckViolation    = "23514"
	codeReadOnly          = "25006"
	codeIdleInTransaction = "25P03"
	codeNoStatement       = "26000"
	codeCompletionUnknown = "40003"
	codeNoColumn          = "42703"
	codeStatementExists   = "42P05"
	codeWrongState        = "55000"
	codeLockNotAvailable  = "55P03"
	codeTooManyConns      = "53300"
	codeCanceled          = "57014"
	codeStarting          = "57P03"
)

// CodeFailedTransaction is the SQLSTATE of any statement in a transaction in which another one has failed.
const CodeFailedTransaction = sqlstate.FailedTransaction

// StateOf returns the SQLSTATE of a server's answer, or "" if err is none.
func StateOf(err error) string { return sqlstate.Of(err) }

// rolledBack reports whether a server that answers COMMIT with that code has certainly rolled back. An answer in which
// the session ends, or the server complains about itself, leaves it open.
func rolledBack(code string) bool {
	switch code {
	case codeCompletionUnknown:
		return false
	case codeIdleInTransaction:
		return true
	}
	for _, class := range []string{"0A", "22", "23", "25", "26", "40", "42", "44", "54", "55", "P0"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
