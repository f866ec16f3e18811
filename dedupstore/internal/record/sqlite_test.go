package record

import (
	"context"
	"errors"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
)

// result is an error of SQLite's drivers.
type result struct {
	code int
	text string
}

func (r *result) Error() string { return r.text }
func (r *result) Code() int     { return r.code }

// A COMMIT of SQLite's that fails has not happened, unless it was the disk, or the driver, that failed.
func TestCommitErrorsOfSQLite(t *testing.T) {
	t.Parallel()
	s := NewSQLite("test", Config{}.WithDefaults())
	for _, c := range []struct {
		err  error
		want dedupstore.Class
	}{
		{&result{5, "database is locked"}, dedupstore.Transient},
		{&result{13, "database or disk is full"}, dedupstore.Unavailable},
		{&result{19, "FOREIGN KEY constraint failed"}, dedupstore.Unclassified},
		{&result{1, "cannot commit - no transaction is active"}, dedupstore.Permanent},
		{&result{10, "disk I/O error"}, dedupstore.OutcomeUnknown},
		{&result{10 | 4<<8, "disk I/O error"}, dedupstore.OutcomeUnknown},
		{errors.New("the driver's own"), dedupstore.OutcomeUnknown},
	} {
		if err := s.CommitError(c.err); dedupstore.ClassOf(err) != c.want {
			t.Errorf("%v: %v, class %v, want %v", c.err, err, dedupstore.ClassOf(err), c.want)
		}
	}
}

// A statement of the function that its own context has ended is nobody's fault but the function's; one that waited for
// another writer is not.
func TestFunctionErrorsOfSQLite(t *testing.T) {
	t.Parallel()
	s := NewSQLite("test", Config{}.WithDefaults())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		code int
		want dedupstore.Class
	}{
		{t.Context(), 5, dedupstore.Transient}, {t.Context(), 9, dedupstore.Transient}, {over, 9, dedupstore.Unclassified},
		{over, 13, dedupstore.Unavailable},
	} {
		if err := s.FunctionError(c.ctx, &result{c.code, "?"}, false); dedupstore.ClassOf(err) != c.want {
			t.Errorf("code %d, context %v: class %v, want %v", c.code, c.ctx.Err(), dedupstore.ClassOf(err), c.want)
		}
	}
}

// A CHECK that names the column of the event is the event's to meet, even where the table's definition cannot be read.
func TestChecksOfTheKeyInSQLite(t *testing.T) {
	t.Parallel()
	s := NewSQLite("test", Config{}.WithDefaults())
	for _, c := range []struct {
		check, defined string
		err            error
		want           bool
	}{
		{"event_id <> 'bad'", "", errors.New("away"), true},
		{"event_id <> 'bad'", "event_id <> 'bad')", nil, true},
		{"short", "short check (length(event_id) < 9)", nil, true},
		{"short", "short check (length(consumer_id) < 9)", nil, false},
		{"short", "", errors.New("away"), false},
		{"duplicates < 9", "duplicates < 9)", nil, false},
	} {
		ask := func(context.Context, string, ...any) (string, error) { return c.defined, c.err }
		err := &result{sqlclass.SQLiteConstraintCheck, "constraint failed: CHECK constraint failed: " + c.check + " (275)"}
		if is := s.ofTheKey(t.Context(), sqlclass.SQLiteConstraintCheck, err, ask); is != c.want {
			t.Errorf("%+v: %v", c, is)
		}
	}
}
