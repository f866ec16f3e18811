package record

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// Answer is what the record was answered with.
type Answer struct {
	// Outcome is what the statement says about the key.
	Outcome Outcome

	// Session has the settings of the session that decide whom and what its statements mean, as they were when the
	// transaction began. Empty where the dialect has none.
	Session Session
}

// Outcome is what the record says about its key.
type Outcome int

// The outcomes.
const (
	// Silent is no answer, or one about another key. It is no repetition unless the record is seen to be there.
	Silent Outcome = iota
	Inserted
	Repeated
)

// OutcomeOf reads the first column of the record, which is null, or missing with its row, where it says nothing about
// the key.
func OutcomeOf(inserted *bool) Outcome {
	switch {
	case inserted == nil:
		return Silent
	case *inserted:
		return Inserted
	}
	return Repeated
}

// Session is the values of sessionSettings, and the number of the server's process, between separators.
type Session string

const separator = "\x1f"

// sessionSettings are those that a function may change with SET and leave behind: then the statements of the next one
// would run as somebody else, find other tables, fire no triggers, read other times, or end early. The user comes
// before the role, which goes with it.
var sessionSettings = []string{
	"session_authorization", "role", "row_security", "search_path", "session_replication_role", "TimeZone",
	"statement_timeout", "lock_timeout", "synchronous_commit",
}

// sessionSQL reads them.
var sessionSQL = func() string {
	values := make([]string, 0, len(sessionSettings)+1)
	for _, name := range sessionSettings {
		values = append(values, "coalesce(current_setting('"+name+"', true), '')")
	}
	return strings.Join(append(values, "pg_backend_pid()"), " || chr(31) || ")
}()

// Same reports whether the settings are the same, in whatever process of the server.
func (s Session) Same(as Session) bool { return s.settings() == as.settings() }

func (s Session) settings() Session { return s[:max(0, strings.LastIndex(string(s), separator))] }

// Of reports whether the server's process has that number, which it tells to those who connect to it, and to no
// pooler's clients.
func (s Session) Of(process uint32) bool {
	return s[len(s.settings()):] == Session(separator+strconv.FormatUint(uint64(process), 10))
}

// Restore returns the statement that sets what differs in now back to what it is in s, until somebody sets it again,
// and its arguments.
func (s Session) Restore(now Session) (text string, args []any) {
	was, is := strings.Split(string(s), separator), strings.Split(string(now), separator)
	var sets []string
	for i, name := range sessionSettings {
		if i < len(was) && i < len(is) && was[i] != is[i] {
			args = append(args, was[i])
			sets = append(sets, fmt.Sprintf("set_config('%s', $%d, false)", name, len(args)))
		}
	}
	return "select concat(" + strings.Join(sets, ", ") + ")", args
}

// swallowed is the error of a record that is not there although it was sent: nobody may take that for a repetition.
func (e *explainer) swallowed(table string) error {
	return e.as(dedupstore.Misconfigured,
		"the record was answered with nothing, and is not in %s: a trigger or a rule swallows or changes what is inserted, or a policy of row-level security hides it: remove it", table)
}
