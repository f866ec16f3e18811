package record

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/internal/sqltable"
)

// Postgres is the dialect of PostgreSQL. It implements Dialect.
type Postgres struct {
	explainer
	reported bool
	place    sqltable.Place
	located  atomic.Pointer[located]
	form     chosen
}

// located is the table where it is.
type located struct {
	schema     string
	table      string // in SQL
	statements map[Form]*Statements
}

// NewPostgres returns the dialect for the store of that name, with a configuration that has its defaults. If reported,
// the transactions set ReportedSetting.
func NewPostgres(store string, cfg Config, reported bool) *Postgres {
	p := &Postgres{explainer: explainer{store, cfg}, reported: reported}
	p.locate(cfg.Schema)
	return p
}

// locate makes the statements. Without a schema they are those of an error.
func (p *Postgres) locate(schema string) {
	in := &located{schema: schema, table: sqltable.Name(schema, p.cfg.Table), statements: map[Form]*Statements{}}
	for _, form := range []Form{Upsert, DoNothing} {
		texts := postgresStatements(&p.cfg, in.table, form, p.reported)
		in.statements[form] = &texts
	}
	p.located.Store(in)
}

// Locate implements Dialect.
func (p *Postgres) Locate(ctx context.Context, ask Query) error {
	if p.schema() != "" {
		return nil
	}
	schema, err := p.place.Find(ctx, sqltable.Query(ask), p.cfg.Table)
	switch {
	case errors.Is(err, sqltable.ErrNotFound):
		if found := p.Examine(ctx, ask); found != nil {
			return found
		}
		return p.as(dedupstore.Misconfigured, "%w: set Config.Schema", err)
	case errors.Is(err, sqltable.ErrNoUsage):
		return p.as(dedupstore.Misconfigured, "%w", err)
	case err != nil && ctx.Err() != nil:
		return p.waited(ctx, err)
	case err != nil:
		return p.as(max(sqlclass.Of(err), dedupstore.Unavailable), "look for the table: %w", err)
	}
	p.locate(schema)
	return nil
}

// schema is that of the table, or empty if it is not known yet.
func (p *Postgres) schema() string { return p.located.Load().schema }

// table is the table as it stands in SQL.
func (p *Postgres) table() string { return p.located.Load().table }

// Statements implements Dialect.
func (p *Postgres) Statements(form Form) *Statements { return p.located.Load().statements[form] }

// Form implements Dialect.
func (p *Postgres) Form(ctx context.Context, try Attempt) (Form, error) {
	return p.form.choose(ctx, p.cfg.DoNothing, noXmax, try)
}

// noXmax reports whether the server cannot read xmax in the row that it wrote.
func noXmax(err error) bool {
	code := StateOf(err)
	return code == codeNotSupported || code == codeNoColumn && strings.Contains(err.Error(), "xmax")
}

// Silence implements Dialect.
func (p *Postgres) Silence(ctx context.Context, form Form, key dedupstore.Key, ask Query) error {
	there, err := ask(ctx, p.Statements(form).Look, key.Event, key.Consumer)
	switch {
	case err != nil:
		return p.RecordError(ctx, key, err, ask)
	case there == "true":
		return nil
	}
	return p.swallowed(p.table())
}

// ofTheTable reports whether Examine may find what is wrong behind a SQLSTATE.
func ofTheTable(code string) bool {
	switch code {
	case codeWrongState, // a deferrable unique constraint, a view
		codeUniqueViolation, // a second unique index
		codeReadOnly:
		return true
	}
	return sqlclass.OfState(code) == dedupstore.Misconfigured
}

// RecordError implements Dialect.
func (p *Postgres) RecordError(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	return probed(err, p.recordError(ctx, key, err, ask))
}

func (p *Postgres) recordError(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	if ctx.Err() != nil {
		return p.waited(ctx, err)
	}
	code := StateOf(err)
	switch {
	case dedupstore.ClassOf(err) != dedupstore.Unclassified:
		return p.named("record the event", err)
	case code == "" && errors.Is(err, context.DeadlineExceeded):
		return p.as(dedupstore.Unavailable,
			"no answer to the record within %v (LockTimeout and CommitTimeout): the server does not answer, or the table is locked, by a migration perhaps: try again later: %w", p.cfg.RecordTimeout(), err)
	case code == "": // the driver complains, not the server
		return p.as(dedupstore.Unavailable, "record the event: %w", err)
	case code == codeIdleInTransaction: // between BEGIN and the record, or in the probe
		return p.as(dedupstore.Unavailable, "record the event: this process stood still for longer than IdleTimeout (%v): %w",
			p.cfg.IdleTimeout, err)
	case code == codeLockNotAvailable:
		return p.as(dedupstore.Transient, "%w, or a lock of the table, for longer than LockTimeout (%v): try again later: %w",
			dedupstore.ErrLocked, p.cfg.LockTimeout, err)
	case code == codeCheckViolation:
		return p.checkViolation(ctx, recorded(key, err), err, ask)
	case strings.HasPrefix(code, "22"):
		return p.badValue(ctx, recorded(key, err), err, ask)
	case code == codeNoStatement || code == codeStatementExists:
		return p.as(dedupstore.Misconfigured, "record the event: %s: %w", sqlclass.Remedy(code), err)
	case ofTheTable(code):
		return p.misconfigurationError(ctx, code, err, ask)
	}
	if class := sqlclass.OfState(code); class != dedupstore.Unclassified {
		return p.as(class, "record the event: %w", err)
	}
	return p.as(dedupstore.Misconfigured, "record the event: %w", err) // whatever it is, no other event would fare better
}

// misconfigurationError says what is wrong with the table, if that is what it was. It may have changed: the form is
// found out again.
func (p *Postgres) misconfigurationError(ctx context.Context, code string, err error, ask Query) error {
	p.form.forget()
	class := dedupstore.Misconfigured
	if code == codeReadOnly { // the session's server is a replica now, and stays one
		class = dedupstore.Unavailable
	}
	if found := p.Examine(ctx, ask); found != nil {
		return dedupstore.WithClass(class, fmt.Errorf("%w (%w)", found, err))
	}
	return p.as(class, "record the event: %w", err)
}

// BeginError implements Dialect.
func (p *Postgres) BeginError(ctx context.Context, err error) error {
	return p.beginError(ctx, sqlclass.Of(err), err)
}

// FunctionError implements Dialect. A statement that was cancelled because its context ended is no server's fault.
func (p *Postgres) FunctionError(ctx context.Context, err error, lost bool) error {
	code := StateOf(err)
	class := sqlclass.OfState(code)
	switch {
	case code == codeIdleInTransaction:
		return p.leftAlone(err)
	case code == codeCanceled && ctx.Err() != nil:
		return err
	case code == "" && lost:
		class = dedupstore.Unavailable
	}
	if remedy := sqlclass.Remedy(code); remedy != "" {
		err = fmt.Errorf("%w (%s)", err, remedy)
	}
	return inClass(class, err)
}

// leftAlone is the error of a session that the server has ended because its transaction was idle.
func (p *Postgres) leftAlone(err error) error {
	return fmt.Errorf("%s: rolled back: the function left its transaction alone for longer than IdleTimeout (%v), or the session's own idle_in_transaction_session_timeout if that is shorter: raise it, or call other services before the first statement: %w", p.store, p.cfg.IdleTimeout, err)
}

// CommitError implements Dialect. A server that answers with an error has rolled back, unless it ends the session or
// complains about itself. Anything else leaves open whether it has committed.
func (p *Postgres) CommitError(err error) error {
	code := StateOf(err)
	switch {
	case code == codeIdleInTransaction:
		return p.leftAlone(err)
	case rolledBack(code):
		return p.as(sqlclass.OfState(code), "commit: rolled back: %w", err)
	}
	return p.Unknown(err)
}

// GiveUp implements Dialect. The server may have become a replica; or it is the session's role, its search_path, its
// time-outs or its prepared statements that are not as they were.
func (p *Postgres) GiveUp(err error) bool {
	class := max(sqlclass.Of(err), dedupstore.ClassOf(err))
	return class == dedupstore.Unavailable || class == dedupstore.Misconfigured || StateOf(err) == codeCanceled ||
		errors.Is(err, dedupstore.ErrTxEnded)
}

// OfTheSession implements Dialect.
func (p *Postgres) OfTheSession(err error) bool {
	code := StateOf(err)
	return code == codeCanceled || sqlclass.OfState(code) == dedupstore.Misconfigured
}

// ConnectError implements Dialect. A server that does not answer, that starts, or that has no place may take the next
// one.
func (p *Postgres) ConnectError(err error) error {
	code := StateOf(err)
	remedy := connectRemedy(err, code)
	if code == "" || sqlclass.OfState(code) == dedupstore.Unavailable {
		return fmt.Errorf("%s: %w: %s: %w", p.store, dedupstore.ErrUnavailable, remedy, err)
	}
	return p.as(dedupstore.Misconfigured, "cannot connect to the database: %s: %w", remedy, err)
}

// connectRemedy says what to look at.
func connectRemedy(err error, code string) string {
	switch text := err.Error(); code {
	case "":
		if strings.Contains(text, "closed pool") || strings.Contains(text, "database is closed") { // as pgxpool and database/sql have it
			return "the pool was closed: close it after Run has returned"
		}
		return "check the host and the port, and that the server runs and can be reached"
	case "28P01", "28000":
		return "check the user and the password"
	case "3D000":
		return "check the name of the database, or create it"
	case codeTooManyConns:
		return "the server has no connection left: lower the pools' sizes, or raise max_connections"
	case codeStarting:
		return "the server starts or stops"
	case "08P01":
		if strings.Contains(err.Error(), "startup parameter") {
			return "the pooler does not take a parameter of the URL: leave it out, or add it to ignore_startup_parameters"
		}
	}
	return "the server refused"
}
