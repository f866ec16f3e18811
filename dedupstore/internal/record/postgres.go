package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// Postgres is the dialect of PostgreSQL. It implements Dialect.
type Postgres struct {
	explainer
	statements map[Form]*Statements
	form       chosen
}

// NewPostgres returns the dialect for the store of that name, with a configuration that has its defaults.
func NewPostgres(store string, cfg Config) *Postgres {
	p := &Postgres{explainer: explainer{store, cfg}, statements: map[Form]*Statements{}}
	for _, form := range []Form{Upsert, DoNothing} {
		texts := postgresStatements(&cfg, form)
		p.statements[form] = &texts
	}
	return p
}

// Statements implements Dialect.
func (p *Postgres) Statements(form Form) *Statements { return p.statements[form] }

// Form implements Dialect.
func (p *Postgres) Form(ctx context.Context, try Attempt) (Form, error) {
	return p.form.choose(ctx, p.cfg.DoNothing, noXmax, try)
}

// noXmax reports whether the server cannot read xmax in the row that it wrote.
func noXmax(err error) bool {
	code := StateOf(err)
	return code == codeNotSupported || code == "42703" && strings.Contains(err.Error(), "xmax")
}

// misconfigured are the SQLSTATEs behind which Examine finds what is wrong with the table.
var misconfigured = map[string]bool{
	"42P01":             true, // undefined table
	"42703":             true, // undefined column
	"42P10":             true, // no unique index for ON CONFLICT
	"42501":             true, // insufficient privilege
	"42809":             true, // not a table
	"55000":             true, // a deferrable unique constraint, a view
	codeNotSupported:    true, // xmax of a table that has become a partitioned one
	codeUniqueViolation: true, // a second unique index
	codeReadOnly:        true,
}

// RecordError implements Dialect.
func (p *Postgres) RecordError(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	if ctx.Err() != nil {
		return p.waited(ctx, err)
	}
	code := StateOf(err)
	switch {
	case dedupstore.ClassOf(err) != dedupstore.Unclassified:
		return fmt.Errorf("%s: record the event: %w", p.store, err)
	case code == "" && errors.Is(err, context.DeadlineExceeded):
		return p.as(dedupstore.Unavailable, "no answer to the record within %v (LockTimeout and CommitTimeout): the server does not answer, or the table is locked, by a migration perhaps: try again later: %w", p.cfg.RecordTimeout(), err)
	case code == "": // the driver complains, not the server
		return p.as(dedupstore.Unavailable, "record the event: %w", err)
	case code == codeLockNotAvailable:
		return p.as(dedupstore.Transient, "%w, or a lock of the table, for longer than LockTimeout (%v): try again later: %w", dedupstore.ErrLocked, p.cfg.LockTimeout, err)
	case code == codeCanceled:
		return p.as(dedupstore.Transient, "record the event: %w", err)
	case code == codeCheckViolation:
		return p.checkViolation(ctx, recorded(key, err), err, ask)
	case strings.HasPrefix(code, "22"):
		return p.refused(err, code)
	case code == codeNoStatement || code == codeStatementExists:
		return p.as(dedupstore.Misconfigured, "record the event: the driver prepares statements by name, which a pooler in transaction mode mixes up: set default_query_exec_mode=exec in the URL: %w", err)
	case misconfigured[code]:
		return p.misconfigurationError(ctx, code, err, ask)
	}
	if class := classOfState(code); class != dedupstore.Unclassified {
		return p.as(class, "record the event: %w", err)
	}
	return p.as(dedupstore.Misconfigured, "record the event: %w", err) // whatever it is, no other event would fare better
}

// refused is the error of a key that the columns do not take. The server's text repeats the id.
func (p *Postgres) refused(err error, code string) error {
	return &silent{fmt.Sprintf("%s: %v: the columns of %s do not take this event id or consumer (SQLSTATE %s)",
		p.store, dedupstore.ErrInvalidKey, p.cfg.tableSQL(), code), errors.Join(dedupstore.ErrInvalidKey, err)}
}

// misconfigurationError says what is wrong with the table, if that is what it was. It may have changed: the form is found out
// again.
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
	return p.beginError(ctx, classOfState(StateOf(err)), err)
}

// FunctionError implements Dialect.
func (p *Postgres) FunctionError(err error, lost bool) error {
	code := StateOf(err)
	class := classOfState(code)
	if code == "" && lost {
		class = dedupstore.Unavailable
	}
	return inClass(class, err)
}

// CommitError implements Dialect. A server that answers with an error has rolled back, unless it ends the session or complains
// about itself. Anything else leaves open whether it has committed.
func (p *Postgres) CommitError(err error) error {
	code := StateOf(err)
	switch {
	case code == codeIdleInTransaction:
		return fmt.Errorf("%s: rolled back: the function left its transaction alone for longer than IdleTimeout (%v): raise it, or call other services before the first statement: %w", p.store, p.cfg.IdleTimeout, err)
	case rolledBack(code):
		return p.as(classOfState(code), "commit: rolled back: %w", err)
	}
	return p.Unknown(err)
}

// GiveUp implements Dialect.
func (p *Postgres) GiveUp(err error) bool { return StateOf(err) == codeReadOnly }

// ConnectError implements Dialect. A server that does not answer, that starts, or that has no place may take the next one.
func (p *Postgres) ConnectError(err error) error {
	code := StateOf(err)
	remedy := connectRemedy(err, code)
	if code == "" || classOfState(code) == dedupstore.Unavailable {
		return fmt.Errorf("%s: %w: %s: %w", p.store, dedupstore.ErrUnavailable, remedy, err)
	}
	return p.as(dedupstore.Misconfigured, "cannot connect to the database: %s: %w", remedy, err)
}

// connectRemedy says what to look at.
func connectRemedy(err error, code string) string {
	switch code {
	case "":
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
