package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// SQLite is the dialect of SQLite. It implements Dialect.
//
// The record is the first statement of a deferred transaction, so it takes the database's write lock, and waits for it as long as
// the connection's busy_timeout says.
type SQLite struct {
	explainer
	statements map[Form]*Statements
	form       chosen
}

// NewSQLite returns the dialect for the store of that name, with a configuration that has its defaults.
func NewSQLite(store string, cfg Config) *SQLite {
	s := &SQLite{explainer: explainer{store, cfg}, statements: map[Form]*Statements{}}
	for _, form := range []Form{Upsert, DoNothing} {
		texts := sqliteStatements(&cfg, form)
		s.statements[form] = &texts
	}
	return s
}

// Statements implements Dialect.
func (s *SQLite) Statements(form Form) *Statements { return s.statements[form] }

// Form implements Dialect.
func (s *SQLite) Form(ctx context.Context, try Attempt) (Form, error) {
	return s.form.choose(ctx, s.cfg.DoNothing, func(error) bool { return false }, try)
}

// SQLite's result codes, of which the low byte is the primary one.
const (
	sqliteError      = 1
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteNoMemory   = 7
	sqliteInterrupt  = 9
	sqliteIOError    = 10
	sqliteFull       = 13
	sqliteConstraint = 19
	sqliteMismatch   = 20

	sqliteConstraintUnique = 2067
)

// sqliteCode returns the result code of an answer of SQLite, or 0 if it does not tell.
func sqliteCode(err error) int {
	var coded interface{ Code() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code()
	case strings.Contains(err.Error(), "database is locked"), strings.Contains(err.Error(), "SQLITE_BUSY"):
		return sqliteBusy
	}
	return 0
}

// RecordError implements Dialect.
func (s *SQLite) RecordError(ctx context.Context, _ dedupstore.Key, err error, ask Query) error {
	if ctx.Err() != nil {
		return s.waited(ctx, err)
	}
	code := sqliteCode(err)
	switch primary := code & 0xff; {
	case dedupstore.ClassOf(err) != dedupstore.Unclassified:
		return fmt.Errorf("%s: record the event: %w", s.store, err)
	case primary == sqliteBusy || primary == sqliteLocked:
		return s.as(dedupstore.Transient, "%w, or another one writes, for longer than the connection's busy_timeout: try again later: %w", dedupstore.ErrLocked, err)
	case primary == sqliteConstraint && code != sqliteConstraintUnique, primary == sqliteMismatch:
		return s.refused(err)
	case sqliteClass(code) != dedupstore.Unclassified:
		return s.as(sqliteClass(code), "record the event: %w", err)
	}
	s.form.forget()
	if found := s.Examine(ctx, ask); found != nil {
		return fmt.Errorf("%w (%w)", found, err)
	}
	return s.as(dedupstore.Misconfigured, "record the event: %w", err)
}

// refused is the error of a key that the table does not take. SQLite's text may repeat it.
func (s *SQLite) refused(err error) error {
	return &silent{fmt.Sprintf("%s: %v: a type or a check of %s does not take this event id or consumer",
		s.store, dedupstore.ErrInvalidKey, s.cfg.tableSQL()), errors.Join(dedupstore.ErrInvalidKey, err)}
}

func sqliteClass(code int) dedupstore.Class {
	switch code & 0xff {
	case sqliteBusy, sqliteLocked, sqliteInterrupt:
		return dedupstore.Transient
	case sqliteNoMemory, sqliteIOError, sqliteFull:
		return dedupstore.Unavailable
	}
	return dedupstore.Unclassified
}

// BeginError implements Dialect.
func (s *SQLite) BeginError(ctx context.Context, err error) error {
	return s.beginError(ctx, sqliteClass(sqliteCode(err)), err)
}

// FunctionError implements Dialect.
func (s *SQLite) FunctionError(err error, _ bool) error {
	return inClass(sqliteClass(sqliteCode(err)), err)
}

// CommitError implements Dialect. A COMMIT that fails leaves the transaction open, to be rolled back; only a failing disk
// leaves open what has happened.
func (s *SQLite) CommitError(err error) error {
	code := sqliteCode(err)
	switch {
	case code&0xff == sqliteError && strings.Contains(err.Error(), "no transaction"):
		// SQLite has rolled back by itself after some errors, which the function then did not return
		return s.TxEnded(nil)
	case code == 0, code&0xff == sqliteIOError:
		return s.Unknown(err)
	}
	return s.as(sqliteClass(code), "commit: rolled back: %w", err)
}

// ConnectError implements Dialect.
func (s *SQLite) ConnectError(err error) error {
	return s.as(dedupstore.Unavailable, "open the database: check that the file is there and can be written: %w", err)
}

// GiveUp implements Dialect.
func (s *SQLite) GiveUp(error) bool { return false }
