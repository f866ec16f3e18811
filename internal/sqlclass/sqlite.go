package sqlclass

import (
	"errors"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// The result codes of SQLite that are told apart. The low byte of a code is its primary one.
const (
	SQLiteError      = 1
	sqlitePerm       = 3
	SQLiteBusy       = 5
	SQLiteLocked     = 6
	sqliteNoMemory   = 7
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	SQLiteIOError    = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteProtocol   = 15
	sqliteSchema     = 17
	SQLiteConstraint = 19
	SQLiteMismatch   = 20
	sqliteAuth       = 23
	sqliteNotADB     = 26

	SQLiteConstraintCheck    = 275
	SQLiteConstraintDatatype = 3091
)

// SQLiteCode returns the result code of an answer of SQLite, or 0 if it does not tell.
func SQLiteCode(err error) int {
	var coded interface{ Code() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code()
	case strings.Contains(err.Error(), "database is locked"), strings.Contains(err.Error(), "SQLITE_BUSY"):
		return SQLiteBusy
	}
	return 0
}

// ofSQLite is Of for SQLite. It has one code for all that is wrong with a statement, and tells by its text what is missing.
func ofSQLite(err error) dedupstore.Class {
	switch SQLiteCode(err) & 0xff {
	case SQLiteBusy, SQLiteLocked, sqliteInterrupt, sqliteProtocol, sqliteSchema:
		return dedupstore.Transient
	case sqliteNoMemory, SQLiteIOError, sqliteFull, sqliteCantOpen:
		return dedupstore.Unavailable
	case sqlitePerm, sqliteReadOnly, sqliteCorrupt, sqliteAuth, sqliteNotADB:
		return dedupstore.Misconfigured
	case SQLiteError:
		for _, missing := range []string{"no such table", "no such column", "has no column named", "no such function"} {
			if strings.Contains(err.Error(), missing) {
				return dedupstore.Misconfigured
			}
		}
	}
	return dedupstore.Unclassified
}
