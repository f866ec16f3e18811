// Package pgxaudit keeps what people do by a console in the table console_action of PostgreSQL, by pgx. It is the
// component "console" of package schema.
//
//	pages, err := console.New(console.Config{Audit: pgxaudit.New(pool, nil)})
package pgxaudit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/console/internal/auditsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds it.
	Schema string

	// Table is the name of the table. Defaults to console_action.
	Table string
}

// Audit is a console.Audit, safe for concurrent use.
type Audit struct{ *auditsql.Audit }

// New returns an Audit in the database of pool, which stays the caller's to close. It does no input or output. What is
// wrong with its arguments is the error of every call.
func New(pool *pgxpool.Pool, cfg *Config) *Audit {
	if cfg == nil {
		cfg = &Config{}
	}
	var invalid error
	if pool == nil {
		invalid = errors.New("the pool is nil: make one with pgxpool.New")
	}
	return &Audit{auditsql.New("pgxaudit", schema.Postgres, auditsql.Config(*cfg), conn{pool}, invalid)}
}

type conn struct{ pool *pgxpool.Pool }

// Number implements auditsql.Conn.
func (c conn) Number(ctx context.Context, text string, args ...any) (n int64, found bool, err error) {
	err = c.pool.QueryRow(ctx, text, args...).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return n, err == nil, err
}
