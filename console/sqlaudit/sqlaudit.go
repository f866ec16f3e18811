// Package sqlaudit keeps what people do by a console in the table console_action of PostgreSQL or SQLite, by
// database/sql. It is the component "console" of package schema.
//
//	pages, err := console.New(console.Config{Audit: sqlaudit.New(db, schema.SQLite, nil)})
package sqlaudit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/einmal-go/einmal/console/internal/auditsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds it. SQLite has no schemas.
	Schema string

	// Table is the name of the table. Defaults to console_action.
	Table string
}

// Audit is a console.Audit, safe for concurrent use.
type Audit struct{ *auditsql.Audit }

// New returns an Audit in db, which stays the caller's to close: of a *bun.DB it is the field DB. The dialect is
// schema.Postgres or schema.SQLite. New does no input or output. What is wrong with its arguments is the error of every
// call.
func New(db *sql.DB, dialect schema.Dialect, cfg *Config) *Audit {
	if cfg == nil {
		cfg = &Config{}
	}
	var invalid error
	if db == nil {
		invalid = errors.New("the database is nil: open one with sql.Open")
	}
	return &Audit{auditsql.New("sqlaudit", dialect, auditsql.Config(*cfg), conn{db}, invalid)}
}

type conn struct{ db *sql.DB }

// Number implements auditsql.Conn.
func (c conn) Number(ctx context.Context, text string, args ...any) (n int64, found bool, err error) {
	err = c.db.QueryRowContext(ctx, text, args...).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return n, err == nil, err
}
