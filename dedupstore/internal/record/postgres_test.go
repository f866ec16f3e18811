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

func newTestPostgres() *Postgres { return NewPostgres("test", Config{}.WithDefaults(), true) }

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
			if dedupstore.ClassOf(err) != want ||
				errors.Is(err, dedupstore.ErrOutcomeUnknown) != (want == dedupstore.OutcomeUnknown) ||
				!errors.Is(err, errors.Unwrap(answer)) {
				t.Errorf("%s: %v, class %v, want %v", code, err, dedupstore.ClassOf(err), want)
			}
		}
	}
	if err := p.CommitError(answers("25P03")[0]); !strings.Contains(err.Error(), "IdleTimeout (1m0s)") {
		t.Errorf("left alone: %v", err)
	}
	for _, lost := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, pgconn.ErrConnClosed, errors.New("?")} {
		if err := p.CommitError(lost); !errors.Is(err, dedupstore.ErrOutcomeUnknown) || !errors.Is(err, lost) {
			t.Errorf("%v: %v", lost, err)
		}
	}
}

func TestRecordErrors(t *testing.T) {
	t.Parallel()
	var code string
	asked := func(_ context.Context, text string, args ...any) (string, error) {
		switch {
		case strings.HasPrefix(code, "22") && strings.Contains(text, "pg_attribute") && args[1] == "event_id":
			return "convert", nil
		case strings.HasPrefix(code, "22") && strings.Contains(text, "pg_attribute"):
			return "", nil
		case text == "convert":
			return "", answers(code)[0]
		}
		return "", errors.New("nobody knows")
	}
	var want dedupstore.Class
	for code, want = range map[string]dedupstore.Class{
		"55P03": dedupstore.Transient,
		"40P01": dedupstore.Transient,
		"40001": dedupstore.Transient,
		"57014": dedupstore.Transient,
		"57P01": dedupstore.Unavailable,
		"08P01": dedupstore.Unavailable,
		"53300": dedupstore.Unavailable,
		"58030": dedupstore.Unavailable,
		"25006": dedupstore.Unavailable,
		"25P03": dedupstore.Unavailable, // the process stood still in front of the record
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
			err := p.RecordError(t.Context(), dedupstore.Key{}, answer, asked)
			if got := dedupstore.ClassOf(err); got != want || !strings.HasPrefix(err.Error(), "test: ") {
				t.Errorf("%s: %v, class %v, want %v", code, err, got, want)
			}
			if held := errors.Is(err, dedupstore.ErrLocked); held != (code == "55P03") {
				t.Errorf("%s: ErrLocked is %v", code, held)
			}
			if prepares := strings.Contains(err.Error(), "default_query_exec_mode=exec"); prepares != (code == "26000" ||
				code == "42P05") {
				t.Errorf("%s: %v", code, err)
			}
			if gaveUp := want == dedupstore.Unavailable || want == dedupstore.Misconfigured ||
				code == "57014"; p.GiveUp(err) != gaveUp {
				t.Errorf("%s: GiveUp is %v", code, !gaveUp)
			}
		}
	}
	for _, lost := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, pgconn.ErrConnClosed} {
		if err := newTestPostgres().RecordError(t.Context(), dedupstore.Key{}, lost,
			asked); dedupstore.ClassOf(err) != dedupstore.Unavailable {
			t.Errorf("%v: %v", lost, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := newTestPostgres().RecordError(ctx, dedupstore.Key{}, io.EOF,
		asked); dedupstore.ClassOf(err) != dedupstore.Unavailable || !errors.Is(err, why) ||
		!errors.Is(err, context.Canceled) {
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
		{answers("23514")[0], false, dedupstore.Unclassified},
		{answers("42P01")[1], false, dedupstore.Misconfigured}, // the function's own table: a deploy before its migration
		{answers("57014")[0], false, dedupstore.Transient},
		{answers("40P01")[0], false, dedupstore.Transient},
		{answers("57P01")[1], true, dedupstore.Unavailable},
		{dedupstore.WithClass(dedupstore.Misconfigured, answers("40P01")[0]), false, dedupstore.Misconfigured}, // another store's word
	} {
		err := p.FunctionError(t.Context(), c.err, c.lost)
		if got := dedupstore.ClassOf(err); got != c.want || !errors.Is(err, c.err) || err.Error() != c.err.Error() {
			t.Errorf("%v, lost %v: %v, class %v, want %v", c.err, c.lost, err, got, c.want)
		}
	}
	for code, c := range map[string]struct {
		says string
		want dedupstore.Class
	}{
		"25P03": {"IdleTimeout (1m0s)", dedupstore.Unclassified}, // it took too long
		"26000": {"default_query_exec_mode=exec", dedupstore.Misconfigured},
		"42P05": {"default_query_exec_mode=exec", dedupstore.Misconfigured},
		"0A000": {"prepares it again", dedupstore.Misconfigured},
	} {
		for _, answer := range answers(code) {
			if err := p.FunctionError(t.Context(), answer, true); dedupstore.ClassOf(err) != c.want || !errors.Is(err, answer) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, class %v", code, err, dedupstore.ClassOf(err))
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.FunctionError(ctx, answers("57014")[0], false); dedupstore.ClassOf(err) != dedupstore.Unclassified {
		t.Errorf("cancelled by its context: %v, class %v", err, dedupstore.ClassOf(err))
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
			if !strings.Contains(err.Error(), want) || errors.Is(err, dedupstore.ErrUnavailable) != unavailable ||
				unavailable != (dedupstore.ClassOf(err) == dedupstore.Unavailable) {
				t.Errorf("%s: %v, class %v", code, err, dedupstore.ClassOf(err))
			}
		}
	}
	if err := p.ConnectError(io.EOF); !errors.Is(err, dedupstore.ErrUnavailable) ||
		!strings.Contains(err.Error(), "host and the port") {
		t.Error(err)
	}
	startup := &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: search_path"}
	if err := p.ConnectError(startup); !strings.Contains(err.Error(), "ignore_startup_parameters") {
		t.Error(err)
	}
}
