package sqldeadletter

import (
	"database/sql"
	"errors"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the tables, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds them. SQLite has no schemas.
	Schema string

	// Table is the name of the table of dead letters. Defaults to dead_message.
	Table string

	// StartedTable is the name of the table in which Starts counts. Defaults to started_message.
	StartedTable string

	// RecordTable is the name of the table of the dedup store, which Starts looks into. Defaults to processed_event.
	RecordTable string

	// MaxBytes is how large a message may be, key and headers included. A larger one is not written: the message stays, is
	// tried again, and holds up what is ordered behind it, until MaxBytes is raised or LeaveOut set. Defaults to 32 MiB;
	// package pgxdeadletter has the reasons.
	MaxBytes int64

	// LeaveOut writes a message that is larger than MaxBytes without its value and headers: where it stood, its key and
	// why it is there are kept, the bytes are in Kafka for as long as the topic keeps them. It cannot be redriven from the
	// table.
	LeaveOut bool
}

// Table is a table of dead letters: a deadletter.Table, safe for concurrent use.
type Table struct{ *deadsql.Table[*sql.Tx] }

var _ deadletter.Table[*sql.Tx] = (*Table)(nil)

// New returns a Table in db, which stays the caller's to close. The dialect is schema.Postgres or schema.SQLite. New
// does no input or output. What is wrong with its arguments is the error of Check, and of every other call.
func New(db *sql.DB, dialect schema.Dialect, cfg *Config) *Table {
	if cfg == nil {
		cfg = &Config{}
	}
	var invalid error
	if db == nil {
		invalid = errors.New("the database is nil: open one with sql.Open")
	}
	in := func(tx *sql.Tx) deadsql.Conn { return deadsql.SQL(tx) }
	return &Table{deadsql.New("sqldeadletter", dialect, deadsql.Config(*cfg), deadsql.SQL(db), in, invalid)}
}
