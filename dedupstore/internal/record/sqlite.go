package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/internal/sqltable"
)

// SQLite is the dialect of SQLite. It implements Dialect.
//
// The record is the first statement of a deferred transaction, so it takes the database's write lock, and waits for it
// as long as the connection's busy_timeout says.
type SQLite struct {
	explainer
	statements map[Form]*Statements
	form       chosen
}

// sqliteSchema is that of the database's own tables. A temporary table would come before one that does not say it.
const sqliteSchema = "main"

// NewSQLite returns the dialect for the store of that name, with a configuration that has its defaults.
func NewSQLite(store string, cfg Config) *SQLite {
	s := &SQLite{explainer: explainer{store, cfg}, statements: map[Form]*Statements{}}
	for _, form := range []Form{Upsert, DoNothing} {
		texts := sqliteStatements(s.table(), form)
		s.statements[form] = &texts
	}
	return s
}

// table is the table as it stands in SQL.
func (s *SQLite) table() string { return sqltable.Name(sqliteSchema, s.cfg.Table) }

// Locate implements Dialect.
func (s *SQLite) Locate(context.Context, Query) error { return nil }

// Statements implements Dialect.
func (s *SQLite) Statements(form Form) *Statements { return s.statements[form] }

// Form implements Dialect.
func (s *SQLite) Form(ctx context.Context, try Attempt) (Form, error) {
	return s.form.choose(ctx, s.cfg.DoNothing, func(error) bool { return false }, try)
}

// Silence implements Dialect.
func (s *SQLite) Silence(ctx context.Context, form Form, key dedupstore.Key, ask Query) error {
	there, err := ask(ctx, s.Statements(form).Look, key.Event, key.Consumer)
	switch {
	case err != nil:
		return s.RecordError(ctx, key, err, ask)
	case there == "true":
		return nil
	}
	return s.swallowed(s.table())
}

// RecordError implements Dialect.
func (s *SQLite) RecordError(ctx context.Context, _ dedupstore.Key, err error, ask Query) error {
	return probed(err, s.recordError(ctx, err, ask))
}

func (s *SQLite) recordError(ctx context.Context, err error, ask Query) error {
	if ctx.Err() != nil {
		return s.waited(ctx, err)
	}
	code := sqlclass.SQLiteCode(err)
	switch primary := code & 0xff; {
	case dedupstore.ClassOf(err) != dedupstore.Unclassified:
		return s.named("record the event", err)
	case primary == sqlclass.SQLiteBusy || primary == sqlclass.SQLiteLocked:
		return s.as(dedupstore.Transient,
			"%w, or another one writes, for longer than the connection's busy_timeout: try again later: %w",
			dedupstore.ErrLocked, err)
	case s.ofTheKey(ctx, code, err, ask):
		return s.refused(err)
	}
	if class := sqlclass.Of(err); class == dedupstore.Transient || class == dedupstore.Unavailable {
		return s.as(class, "record the event: %w", err)
	}
	if found := s.Examine(ctx, ask); found != nil {
		return fmt.Errorf("%w (%w)", found, err)
	}
	return s.as(dedupstore.Misconfigured, "record the event: %w", err)
}

// ofTheKey reports whether a type, or a check, of the table refuses the event's id. Of other constraints, and of
// triggers, the event is not to blame.
func (s *SQLite) ofTheKey(ctx context.Context, code int, err error, ask Query) bool {
	if code&0xff == sqlclass.SQLiteMismatch || code == sqlclass.SQLiteConstraintDatatype {
		return true
	}
	_, check, _ := strings.Cut(err.Error(), "CHECK constraint failed: ") // its name, or the condition if it has none
	check, _, _ = strings.Cut(check, " (")
	if code != sqlclass.SQLiteConstraintCheck || check == "" {
		return false
	}
	defined, askErr := ask(ctx, "select coalesce((select substr(sql, instr(sql, ?2)) from main.sqlite_master where type = 'table' and name = ?1), '')", s.cfg.Table, check)
	return strings.Contains(check, "event_id") || askErr == nil && strings.Contains(condition(defined), "event_id")
}

// condition returns what stands in the first parentheses of a text.
func condition(text string) string {
	open := 0
	for i, c := range text {
		switch c {
		case '(':
			open++
		case ')':
			if open--; open <= 0 {
				return text[:i]
			}
		}
	}
	return ""
}

// refused is the error of a key that the table does not take. SQLite's text may repeat it.
func (s *SQLite) refused(err error) error {
	return &silent{fmt.Sprintf("%s: %v: a type or a check of %s does not take this event id",
		s.store, dedupstore.ErrInvalidKey, s.table()), errors.Join(dedupstore.ErrInvalidKey, err)}
}

// BeginError implements Dialect.
func (s *SQLite) BeginError(ctx context.Context, err error) error {
	return s.beginError(ctx, sqlclass.Of(err), err)
}

// FunctionError implements Dialect.
func (s *SQLite) FunctionError(ctx context.Context, err error, _ bool) error {
	class := sqlclass.Of(err)
	if class == dedupstore.Transient && ctx.Err() != nil { // interrupted by it
		return err
	}
	return inClass(class, err)
}

// CommitError implements Dialect. A COMMIT that fails leaves the transaction open, to be rolled back; only a failing
// disk leaves open what has happened.
func (s *SQLite) CommitError(err error) error {
	code := sqlclass.SQLiteCode(err)
	switch {
	case code&0xff == sqlclass.SQLiteError && strings.Contains(err.Error(), "no transaction"):
		// SQLite has rolled back by itself after some errors, which the function then did not return
		return s.TxEnded(nil)
	case code == 0, code&0xff == sqlclass.SQLiteIOError:
		return s.Unknown(err)
	}
	return s.as(sqlclass.Of(err), "commit: rolled back: %w", err)
}

// ConnectError implements Dialect.
func (s *SQLite) ConnectError(err error) error {
	return s.as(dedupstore.Unavailable, "open the database: check that the file is there and can be written: %w", err)
}

// GiveUp implements Dialect.
func (s *SQLite) GiveUp(err error) bool { return errors.Is(err, dedupstore.ErrTxEnded) }

// OfTheSession implements Dialect. Nobody keeps SQLite's connections but the pool.
func (s *SQLite) OfTheSession(error) bool { return false }
