package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
)

// The SQLSTATEs that the store tells apart.
const (
	codeLockNotAvailable  = "55P03"
	codeIdleInTransaction = "25P03"
	codeCompletionUnknown = "40003"
	codeReadOnly          = "25006"
	classConnection       = "08"
	classData             = "22"
)

// misconfigured are the SQLSTATEs behind which Check finds what is wrong with the table.
var misconfigured = map[string]bool{
	"42P01":      true, // undefined table
	"42703":      true, // undefined column
	"42P10":      true, // no unique index for ON CONFLICT
	"42501":      true, // insufficient privilege
	"42809":      true, // not a table
	"0A000":      true, // not supported: xmax of a partitioned table
	"55000":      true, // a deferrable unique constraint, a view
	codeReadOnly: true,
}

// recordError explains why the first round trip failed. The transaction has been rolled back.
func (s *Store) recordError(ctx context.Context, conn *pgx.Conn, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pgxstore: rolled back: %w (%w)", cause(ctx), err)
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("pgxstore: no answer to the record within %v (LockTimeout and CommitTimeout): the server does not answer, or the table is locked, by a migration perhaps: try again later: %w", s.cfg.recordTimeout(), err)
	case !errors.As(err, &pgErr):
	case pgErr.Code == codeLockNotAvailable:
		return fmt.Errorf("pgxstore: another transaction has held the event, or the table, for longer than LockTimeout (%v): try again later: %w", s.cfg.LockTimeout, err)
	case strings.HasPrefix(pgErr.Code, classData): // its text repeats the id
		return &silent{fmt.Sprintf("pgxstore: %v: the columns of %s do not take this event id or consumer (SQLSTATE %s)",
			dedupstore.ErrInvalidKey, s.sql.table, pgErr.Code), errors.Join(dedupstore.ErrInvalidKey, err)}
	case misconfigured[pgErr.Code]:
		return s.misconfigurationError(ctx, conn, pgErr)
	}
	return fmt.Errorf("pgxstore: record the event: %w", err)
}

// misconfigurationError says what is wrong with the table, if that is what it was.
func (s *Store) misconfigurationError(ctx context.Context, conn *pgx.Conn, err *pgconn.PgError) error {
	found := s.examine(ctx, conn)
	if err.Code == codeReadOnly { // the session's server is a replica now, and stays one: the pool must look for the primary
		_ = conn.Close(ctx)
	}
	if found == nil {
		return fmt.Errorf("pgxstore: record the event: %w", err)
	}
	return fmt.Errorf("%w (%w)", found, err)
}

// commitError tells what a failed COMMIT means. A server that answers with an error has rolled back. Anything else leaves
// open whether it has committed.
func (s *Store) commitError(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("pgxstore: rolled back: a statement failed, and the function returned nil: %w", err)
	case !errors.As(err, &pgErr):
	case pgErr.Code == codeIdleInTransaction:
		return fmt.Errorf("pgxstore: rolled back: the function left its transaction alone for longer than IdleTimeout (%v): raise it, or call other services before the first statement: %w", s.cfg.IdleTimeout, err)
	case severity(pgErr) == "ERROR" && !strings.HasPrefix(pgErr.Code, classConnection) && pgErr.Code != codeCompletionUnknown:
		return fmt.Errorf("pgxstore: commit: rolled back: %w", err)
	}
	return fmt.Errorf("pgxstore: commit: %w: call Once again, the record decides: %w", dedupstore.ErrOutcomeUnknown, err)
}

// severity is not translated on any server since 9.6.
func severity(err *pgconn.PgError) string {
	if err.SeverityUnlocalized != "" {
		return err.SeverityUnlocalized
	}
	return err.Severity
}

// cause returns why ctx is done: the context's error, and its cause where that is another one.
func cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// txEnded adds to the function's error, if it has one that does not say so, that it ended the transaction.
func txEnded(err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("pgxstore: %w", dedupstore.ErrTxEnded)
	case errors.Is(err, dedupstore.ErrTxEnded):
		return err
	}
	return fmt.Errorf("%w (%w)", err, dedupstore.ErrTxEnded)
}

// silent is an error whose text does not repeat those that it wraps.
type silent struct {
	text string
	err  error
}

func (e *silent) Error() string { return e.text }
func (e *silent) Unwrap() error { return e.err }
