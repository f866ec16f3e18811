package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
)

// fields is an error in the way of bun's pgdriver.
type fields struct{ m map[byte]string }

func (f *fields) Error() string       { return f.m['S'] + ": " + f.m['M'] }
func (f *fields) Field(k byte) string { return f.m[k] }

// answers are a server's, as the drivers hand them on.
func answers(code string) []error {
	return []error{
		fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "FEHLER", Code: code}),
		fmt.Errorf("wrapped: %w", &fields{map[byte]string{'S': "FEHLER", 'C': code}}),
	}
}

func newTestPostgres() *Postgres { return NewPostgres("test", Config{}.WithDefaults()) }

func TestCommitErrors(t *testing.T) {
	t.Parallel()
	p := newTestPostgres()
	for code, want := range map[string]dedupstore.Class{
		"23503": dedupstore.Unclassified, // a deferred constraint
		"P0001": dedupstore.Unclassified, // raised by a trigger
		"25P03": dedupstore.Unclassified, // left alone for too long
		"25P02": dedupstore.Unclassified, // a statement failed
		"40001": dedupstore.Transient,
		"40P01": dedupstore.Transient,
		"55P03": dedupstore.Transient,
		"57P01": dedupstore.OutcomeUnknown, // shutdown
		"57P02": dedupstore.OutcomeUnknown, // crash
		"08006": dedupstore.OutcomeUnknown, // a pooler lost the server
		"40003": dedupstore.OutcomeUnknown, // by its name
		"XX000": dedupstore.OutcomeUnknown,
		"53100": dedupstore.OutcomeUnknown, // the disk is full: of the log, perhaps
		"00000": dedupstore.OutcomeUnknown,
	} {
		for _, answer := range answers(code) {
			err := p.CommitError(answer)
			if dedupstore.ClassOf(err) != want || errors.Is(err, dedupstore.ErrOutcomeUnknown) != (want == dedupstore.OutcomeUnknown) || !errors.Is(err, errors.Unwrap(answer)) {
				t.Errorf("%s: %v, class %v, want %v", code, err, dedupstore.ClassOf(err), want)
			}
		}
	}
	for _, lost := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, pgconn.ErrConnClosed, errors.New("?")} {
		if err := p.CommitError(lost); !errors.Is(err, dedupstore.ErrOutcomeUnknown) || !errors.Is(err, lost) {
			t.Errorf("%v: %v", lost, err)
		}
	}
}

func TestRecordErrors(t *testing.T) {
	t.Parallel()
	notAsked := func(context.Context, string, ...any) (string, error) {
		return "", errors.New("nobody knows")
	}
	for code, want := range map[string]dedupstore.Class{
		"55P03": dedupstore.Transient,
		"40P01": dedupstore.Transient,
		"40001": dedupstore.Transient,
		"57014": dedupstore.Transient,
		"57P01": dedupstore.Unavailable,
		"08P01": dedupstore.Unavailable,
		"53300": dedupstore.Unavailable,
		"58030": dedupstore.Unavailable,
		"25006": dedupstore.Unavailable,
		"22021": dedupstore.Permanent,
		"22P02": dedupstore.Permanent,
		"26000": dedupstore.Misconfigured,
		"42P05": dedupstore.Misconfigured,
		"42P01": dedupstore.Misconfigured,
		"42501": dedupstore.Misconfigured,
		"P0001": dedupstore.Misconfigured, // a trigger of somebody's
		"XX000": dedupstore.Misconfigured,
	} {
		for _, answer := range answers(code) {
			p := newTestPostgres()
			err := p.RecordError(t.Context(), dedupstore.Key{}, answer, notAsked)
			if got := dedupstore.ClassOf(err); got != want || !strings.HasPrefix(err.Error(), "test: ") {
				t.Errorf("%s: %v, class %v, want %v", code, err, got, want)
			}
			if held := errors.Is(err, dedupstore.ErrLocked); held != (code == "55P03") {
				t.Errorf("%s: ErrLocked is %v", code, held)
			}
			if prepares := strings.Contains(err.Error(), "default_query_exec_mode=exec"); prepares != (code == "26000" || code == "42P05") {
				t.Errorf("%s: %v", code, err)
			}
			if p.GiveUp(answer) != (code == "25006") {
				t.Errorf("%s: GiveUp is wrong", code)
			}
		}
	}
	for _, lost := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, pgconn.ErrConnClosed} {
		if err := newTestPostgres().RecordError(t.Context(), dedupstore.Key{}, lost, notAsked); dedupstore.ClassOf(err) != dedupstore.Unavailable {
			t.Errorf("%v: %v", lost, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := newTestPostgres().RecordError(ctx, dedupstore.Key{}, io.EOF, notAsked); dedupstore.ClassOf(err) != dedupstore.Unclassified || !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: %v", err)
	}
}

func TestFunctionErrors(t *testing.T) {
	t.Parallel()
	p := newTestPostgres()
	own := errors.New("no stock")
	for _, c := range []struct {
		err  error
		lost bool
		want dedupstore.Class
	}{
		{own, false, dedupstore.Unclassified},
		{own, true, dedupstore.Unavailable},
		{answers("23505")[0], false, dedupstore.Unclassified},
		{answers("42P01")[1], false, dedupstore.Unclassified}, // the function's own table
		{answers("25P03")[0], true, dedupstore.Unclassified},  // it took too long
		{answers("40P01")[0], false, dedupstore.Transient},
		{answers("57P01")[1], true, dedupstore.Unavailable},
		{dedupstore.WithClass(dedupstore.Misconfigured, answers("40P01")[0]), false, dedupstore.Misconfigured}, // another store's word
	} {
		err := p.FunctionError(c.err, c.lost)
		if got := dedupstore.ClassOf(err); got != c.want || !errors.Is(err, c.err) || err.Error() != c.err.Error() {
			t.Errorf("%v, lost %v: %v, class %v, want %v", c.err, c.lost, err, got, c.want)
		}
	}
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	p := newTestPostgres()
	for code, want := range map[string]string{
		"28P01": "check the user and the password", "28000": "check the user", "3D000": "check the name of the database",
		"53300": "raise max_connections", "57P03": "starts or stops", "42501": "refused",
	} {
		unavailable := code == "53300" || code == "57P03"
		for _, answer := range answers(code) {
			err := p.ConnectError(answer)
			if !strings.Contains(err.Error(), want) || errors.Is(err, dedupstore.ErrUnavailable) != unavailable || unavailable != (dedupstore.ClassOf(err) == dedupstore.Unavailable) {
				t.Errorf("%s: %v, class %v", code, err, dedupstore.ClassOf(err))
			}
		}
	}
	if err := p.ConnectError(io.EOF); !errors.Is(err, dedupstore.ErrUnavailable) || !strings.Contains(err.Error(), "host and the port") {
		t.Error(err)
	}
	startup := &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: search_path"}
	if err := p.ConnectError(startup); !strings.Contains(err.Error(), "ignore_startup_parameters") {
		t.Error(err)
	}
}
