package bundeadletter

import (
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadsql"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/schema"
)

// Table is a table of dead letters: a deadletter.Table, safe for concurrent use.
type Table struct{ *deadsql.Table[bun.Tx] }

var _ deadletter.Table[bun.Tx] = (*Table)(nil)

// New returns a Table in db, which stays the caller's to close. A nil cfg is all defaults. New does no input or output.
// What is wrong with its arguments is the error of Check, and of every other call.
func New(db *bun.DB, cfg *sqldeadletter.Config) *Table {
	if cfg == nil {
		cfg = &sqldeadletter.Config{}
	}
	name, invalid := dialectOf(db)
	var pool deadsql.Conn
	if db != nil {
		pool = deadsql.SQL(db.DB) // the values stand beside the texts, not in them
	}
	in := func(tx bun.Tx) deadsql.Conn { return deadsql.SQL(tx.Tx) }
	return &Table{deadsql.New("bundeadletter", name, deadsql.Config(*cfg), pool, in, invalid)}
}

func dialectOf(db *bun.DB) (schema.Dialect, error) {
	if db == nil {
		return schema.Postgres, errors.New("the database is nil: make one with bun.NewDB")
	}
	switch name := db.Dialect().Name(); name {
	case dialect.PG:
		return schema.Postgres, nil
	case dialect.SQLite:
		return schema.SQLite, nil
	default:
		return schema.Postgres, fmt.Errorf("bun's dialect %v is not supported: use pgdialect or sqlitedialect", name)
	}
}
