package pgxstore

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
)

func TestCommitErrors(t *testing.T) {
	t.Parallel()
	answer := func(severity, code string) error {
		return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: severity, Code: code}
	}
	for name, c := range map[string]struct {
		err     error
		unknown bool
	}{
		"constraint":              {answer("ERROR", "23503"), false},
		"serialization failure":   {answer("ERROR", "40001"), false},
		"idle in transaction":     {answer("FATAL", "25P03"), false},
		"swallowed":               {pgx.ErrTxCommitRollback, false},
		"shutdown":                {answer("FATAL", "57P01"), true},
		"crash":                   {answer("PANIC", "57P02"), true},
		"pooler lost the server":  {answer("ERROR", "08006"), true},
		"completion unknown":      {answer("ERROR", "40003"), true},
		"old server":              {&pgconn.PgError{Severity: "ERROR", Code: "23505"}, false},
		"old server, FATAL":       {&pgconn.PgError{Severity: "FATAL", Code: "57P01"}, true},
		"connection lost":         {io.ErrUnexpectedEOF, true},
		"deadline":                {context.DeadlineExceeded, true},
		"closed by the driver":    {pgconn.ErrConnClosed, true},
		"anything else is unsure": {errors.New("?"), true},
	} {
		s := New(nil, nil)
		err := s.commitError(c.err)
		if errors.Is(err, dedupstore.ErrOutcomeUnknown) != c.unknown || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want unknown %v", name, err, c.unknown)
		}
	}
}

func TestConnectRemedies(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"28P01": "password", "28000": "user", "3D000": "name of the database", "53300": "max_connections", "": "host and the port"} {
		var err error = &pgconn.PgError{Code: code}
		if code == "" {
			err = io.EOF
		}
		if got := connectRemedy(err); !strings.Contains(got, want) {
			t.Errorf("%s: %s", code, got)
		}
	}
}
