package schema

import (
	"fmt"
	"slices"
	"strings"
)

// seen is what a database's catalogue tells of a table, and of the session.
type seen struct {
	Found       bool         `json:"found"`
	SchemaFound bool         `json:"schema_found"`
	Hidden      string       `json:"hidden"` // the schema of the table, quoted, if the user may not look into it
	Kind        string       `json:"kind"`   // r: a table, p: a partitioned one, v: a view; what else pg_class.relkind has
	Unlogged    bool         `json:"unlogged"`
	Columns     []seenColumn `json:"columns"`
	Indexes     []seenIndex  `json:"indexes"`
	Storage     []seenPart   `json:"storage"` // the table, or its partitions
	Missing     []string     `json:"missing"` // privileges
	User        string       `json:"user"`    // quoted
	Settings    seenSettings `json:"settings"`

	Triggers    []seenTrigger `json:"triggers"`     // that run for each row before it is written
	Rules       []string      `json:"rules"`        // quoted
	RowSecurity bool          `json:"row_security"` // it applies to the user
	Taken       []seenName    `json:"taken"`        // names of its indexes that others have
}

type seenTrigger struct {
	Name   string `json:"name"`   // quoted
	On     string `json:"on"`     // the table or partition, quoted
	Drops  bool   `json:"drops"`  // what it does says so
	Insert bool   `json:"insert"` // it runs for insertions
}

type seenName struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`  // as pg_class.relkind
	SQL   string `json:"sql"`   // quoted, with its schema
	Table string `json:"table"` // of an index, quoted
}

type seenColumn struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Folds   bool   `json:"folds"`    // its collation takes different texts for the same
	NotNull bool   `json:"not_null"` // and
	Filled  bool   `json:"filled"`   // has a value of its own in a row that names none
	Counted bool   `json:"counted"`  // by a sequence
	Default string `json:"default"`  // as the catalogue has it

	Generated bool         `json:"generated"` // always, from other columns
	Sequence  seenSequence `json:"sequence"`  // that counts it
}

type seenSequence struct {
	Name      string `json:"name"` // quoted; "" if there is none
	Cache     int64  `json:"cache"`
	Increment int64  `json:"increment"`
	Cycle     bool   `json:"cycle"`
}

type seenIndex struct {
	Name       string   `json:"name"`       // quoted
	Constraint string   `json:"constraint"` // that it belongs to, quoted
	Unique     bool     `json:"unique"`
	Valid      bool     `json:"valid"`
	Deferrable bool     `json:"deferrable"`
	Partial    bool     `json:"partial"`
	Where      string   `json:"where"` // its condition, as the catalogue has it
	Folds      bool     `json:"folds"`
	Columns    []string `json:"columns"` // an expression has the name ""
}

type seenPart struct {
	Name    string   `json:"name"` // quoted
	Options []string `json:"options"`

	Unlogged bool `json:"unlogged"`
}

type seenSettings struct {
	ReadOnly          string `json:"transaction_read_only"`
	SynchronousCommit string `json:"synchronous_commit"`
	Fsync             string `json:"fsync"`
}

// server says what is wrong with the server or the session.
func (s *seen) server() (found []Finding) {
	note := func(level Level, name, format string, args ...any) {
		found = append(found, Finding{Level: level, About: "server " + name, Says: fmt.Sprintf(format, args...)})
	}
	if isOn(s.Settings.ReadOnly) {
		note(LevelError, "read_only", "the server, the session or the role is read-only: connect to the primary (target_session_attrs=read-write), and look for a default_transaction_read_only of the role or the database")
	}
	if isOff(s.Settings.SynchronousCommit) {
		note(LevelWarning, "synchronous_commit",
			"synchronous_commit is off: a crash of the server loses what was committed last, effects and records, although Kafka's offsets have moved on")
	}
	if isOff(s.Settings.Fsync) {
		note(LevelWarning, "fsync", "fsync is off: a crash of the machine loses or damages what was committed")
	}
	return found
}

// isOn and isOff know how a setting may be written in pg_db_role_setting.
func isOn(value string) bool {
	return slices.Contains([]string{"on", "true", "yes", "1", "t", "y"}, strings.ToLower(value))
}

func isOff(value string) bool {
	return slices.Contains([]string{"off", "false", "no", "0", "f", "n"}, strings.ToLower(value))
}

func (i *seenIndex) mentions(column string) bool {
	return slices.Contains(i.Columns, column)
}

// covers reports whether the index has all these columns.
func (i *seenIndex) covers(columns []string) bool {
	for _, column := range columns {
		if !i.mentions(column) {
			return false
		}
	}
	return true
}

// arbiter reports whether ON CONFLICT with these columns takes the index.
func (i *seenIndex) arbiter(columns []string) bool {
	return i.Unique && i.Valid && !i.Deferrable && !i.Partial && len(i.Columns) == len(columns) && i.covers(columns)
}

// sameCondition reports whether the index has the rows that the files want it to have: others beside them make it slow.
func (i *seenIndex) sameCondition(where string) bool {
	return i.Partial == (where != "") && (i.Where == "" || bare(i.Where) == bare(where))
}

// bare is a condition without what the catalogue adds: parentheses, casts and white space.
func bare(condition string) string {
	return strings.ToLower(strings.NewReplacer("(", "", ")", "", " ", "", "::text", "").Replace(condition))
}

// beginsWith reports whether the index finds and sorts by these columns. An expression is taken for that of the files.
func (i *seenIndex) beginsWith(columns []string) bool {
	if !i.Valid || len(i.Columns) < len(columns) {
		return false
	}
	for n, column := range columns {
		if i.Columns[n] != column && (i.Columns[n] != "" || !strings.Contains(column, "(")) {
			return false
		}
	}
	return true
}
