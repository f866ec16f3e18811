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

// sqliteState is a row of the table of SQLite's codes.
type sqliteState struct {
	code  int // a primary one
	name  string
	class dedupstore.Class
	what  string
}

// sqliteStates is the table. What is not in it is Unclassified, as in states.
var sqliteStates = []sqliteState{
	{SQLiteError, "SQLITE_ERROR", dedupstore.Misconfigured,
		"no such table, column or function; other wrong statements are `Unclassified`"},
	{sqlitePerm, "SQLITE_PERM", dedupstore.Misconfigured, "access refused"},
	{SQLiteBusy, "SQLITE_BUSY", dedupstore.Transient, "another connection writes"},
	{SQLiteLocked, "SQLITE_LOCKED", dedupstore.Transient,
		"a statement of the same connection, or of one with the same cache, is in the way"},
	{sqliteNoMemory, "SQLITE_NOMEM", dedupstore.Unavailable, "memory used up"},
	{sqliteReadOnly, "SQLITE_READONLY", dedupstore.Misconfigured, "the file, or the connection, is read-only"},
	{sqliteInterrupt, "SQLITE_INTERRUPT", dedupstore.Transient, "interrupted by somebody"},
	{SQLiteIOError, "SQLITE_IOERR", dedupstore.Unavailable, "the disk fails"},
	{sqliteCorrupt, "SQLITE_CORRUPT", dedupstore.Misconfigured, "the file is damaged"},
	{sqliteFull, "SQLITE_FULL", dedupstore.Unavailable, "the disk is full"},
	{sqliteCantOpen, "SQLITE_CANTOPEN", dedupstore.Unavailable, "the file cannot be opened"},
	{sqliteProtocol, "SQLITE_PROTOCOL", dedupstore.Transient, "a lock was lost to another one for too long"},
	{sqliteSchema, "SQLITE_SCHEMA", dedupstore.Transient, "the schema has changed meanwhile"},
	{sqliteAuth, "SQLITE_AUTH", dedupstore.Misconfigured, "the authorizer refuses"},
	{sqliteNotADB, "SQLITE_NOTADB", dedupstore.Misconfigured, "the file is no database"},
}

// ofSQLite is Of for SQLite. It has one code for all that is wrong with a statement, and tells by its text what is
// missing.
func ofSQLite(err error) dedupstore.Class {
	primary := SQLiteCode(err) & 0xff
	for _, s := range sqliteStates {
		if s.code == primary && (primary != SQLiteError || saysMissing(err)) {
			return s.class
		}
	}
	return dedupstore.Unclassified
}

func saysMissing(err error) bool {
	for _, missing := range []string{"no such table", "no such column", "has no column named", "no such function"} {
		if strings.Contains(err.Error(), missing) {
			return true
		}
	}
	return false
}
