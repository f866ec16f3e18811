package schema

import (
	"fmt"
	"slices"
)

// seen is what a database's catalogue tells of a table, and of the session.
type seen struct {
	Found       bool         `json:"found"`
	SchemaFound bool         `json:"schema_found"`
	Kind        string       `json:"kind"` // r: a table, p: a partitioned one, v: a view; what else pg_class.relkind has
	Unlogged    bool         `json:"unlogged"`
	Columns     []seenColumn `json:"columns"`
	Indexes     []seenIndex  `json:"indexes"`
	Storage     []seenPart   `json:"storage"` // the table, or its partitions
	Missing     []string     `json:"missing"` // privileges
	User        string       `json:"user"`    // quoted
	Settings    seenSettings `json:"settings"`
}

type seenColumn struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Folds   bool   `json:"folds"`    // its collation takes different texts for the same
	NotNull bool   `json:"not_null"` // and
	Filled  bool   `json:"filled"`   // has a value of its own in a row that names none
	Counted bool   `json:"counted"`  // by a sequence
}

type seenIndex struct {
	Name       string   `json:"name"`       // quoted
	Constraint string   `json:"constraint"` // that it belongs to, quoted
	Unique     bool     `json:"unique"`
	Valid      bool     `json:"valid"`
	Deferrable bool     `json:"deferrable"`
	Partial    bool     `json:"partial"`
	Folds      bool     `json:"folds"`
	Columns    []string `json:"columns"` // an expression has the name ""
}

type seenPart struct {
	Name    string   `json:"name"` // quoted
	Options []string `json:"options"`
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
	if s.Settings.ReadOnly == "on" {
		note(LevelError, "read_only", "the server, or the session, is read-only: connect to the primary (target_session_attrs=read-write)")
	}
	if s.Settings.SynchronousCommit == "off" {
		note(LevelWarning, "synchronous_commit", "synchronous_commit is off: a crash of the server loses what was committed last, effects and records, although Kafka's offsets have moved on")
	}
	if s.Settings.Fsync == "off" {
		note(LevelWarning, "fsync", "fsync is off: a crash of the machine loses or damages what was committed")
	}
	return found
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

// beginsWith reports whether the index finds and sorts by these columns.
func (i *seenIndex) beginsWith(columns []string) bool {
	if !i.Valid || len(i.Columns) < len(columns) {
		return false
	}
	for n, column := range columns {
		if i.Columns[n] != column {
			return false
		}
	}
	return true
}
