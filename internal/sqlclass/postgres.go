package sqlclass

import (
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlstate"
)

// state is a row of the table of SQLSTATEs: a code, or the class that codes begin with.
type state struct {
	code  string
	class dedupstore.Class
	name  string
}

// states is the table. The longest code that an error's begins with decides. What is not in it is Unclassified: bad
// values, violated constraints, errors raised on purpose and wrong statements, of which the event or its handler is to
// blame.
var states = []state{
	{"08", dedupstore.Unavailable, "connection exceptions"},
	{"0A000", dedupstore.Misconfigured, "feature not supported; a cached plan whose result changed"},
	{"25006", dedupstore.Unavailable, "read-only transaction: the server has become a replica"},
	{"26000", dedupstore.Misconfigured, "prepared statement does not exist: a pooler in transaction mode"},
	{"28", dedupstore.Misconfigured, "user or password refused"},
	{"3D000", dedupstore.Misconfigured, "database does not exist"},
	{"3F000", dedupstore.Misconfigured, "schema does not exist"},
	{"40", dedupstore.Transient, "deadlocks, serialization failures"},
	{"40002", dedupstore.Unclassified, "integrity constraint violated at the end of the transaction"},
	{"40003", dedupstore.Unavailable, "statement completion unknown"},
	{"42501", dedupstore.Misconfigured, "privilege missing"},
	{"42702", dedupstore.Misconfigured, "column name ambiguous: a new column has it too"},
	{"42703", dedupstore.Misconfigured, "column does not exist"},
	{"42704", dedupstore.Misconfigured, "type, collation or other object does not exist"},
	{"42725", dedupstore.Misconfigured, "function name ambiguous"},
	{"42804", dedupstore.Misconfigured, "column of another type"},
	{"42809", dedupstore.Misconfigured, "not a table"},
	{"42846", dedupstore.Misconfigured, "type cannot be converted to the column's"},
	{"42883", dedupstore.Misconfigured, "function or operator does not exist"},
	{"428C9", dedupstore.Misconfigured, "generated column"},
	{"42P01", dedupstore.Misconfigured, "table does not exist"},
	{"42P05", dedupstore.Misconfigured, "prepared statement exists already: a pooler in transaction mode"},
	{"42P10", dedupstore.Misconfigured, "no unique index for ON CONFLICT"},
	{"53", dedupstore.Unavailable, "connections, memory or disk used up"},
	{"55006", dedupstore.Transient, "object in use"},
	{"55P03", dedupstore.Transient, "lock not available in time"},
	{"57014", dedupstore.Transient, "cancelled: by statement_timeout, or an operator"},
	{"57P", dedupstore.Unavailable, "server shuts down, has crashed, or starts"},
	{"58", dedupstore.Unavailable, "the system around the server"},
	{"HV00N", dedupstore.Unavailable, "foreign server cannot be reached"},
	{"XX001", dedupstore.Unavailable, "data corrupted"},
	{"XX002", dedupstore.Unavailable, "index corrupted"},
}

// OfState returns the class of a SQLSTATE, wherever it comes from.
func OfState(code string) dedupstore.Class {
	var best state
	for _, s := range states {
		if len(s.code) > len(best.code) && strings.HasPrefix(code, s.code) {
			best = s
		}
	}
	return best.class
}

// prepared is what to do about a driver that prepares statements behind a pooler that changes the sessions.
const prepared = "the driver prepares statements by name, which a pooler in transaction mode mixes up: set default_query_exec_mode=exec in the URL"

// changed is what to do about a prepared statement whose table has changed.
const changed = "if a prepared statement's table has changed, the next connection prepares it again"

// Remedy returns what to do about a SQLSTATE where the server's text does not say it, or "".
func Remedy(code string) string {
	switch code {
	case "26000", "42P05":
		return prepared
	case "0A000":
		return changed
	}
	return ""
}

// Of returns the class of an error of PostgreSQL or SQLite that a statement of anybody's has met. The error of a
// connection, which has no code, is Unclassified.
func Of(err error) dedupstore.Class {
	if code := sqlstate.Of(err); code != "" {
		return OfState(code)
	}
	return ofSQLite(err)
}

// Spoils reports whether the session may be to blame for an error, which has a role, a search_path, prepared statements
// or a default that others have left there: its connection is not to be used again.
func Spoils(err error) bool {
	code := sqlstate.Of(err)
	return code == "25006" || OfState(code) == dedupstore.Misconfigured
}
