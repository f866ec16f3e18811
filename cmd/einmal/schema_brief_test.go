package main

import (
	"context"
	"database/sql"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// What a store says of a table that is missing is one line, without statements. The command in it, read by a shell,
// prints the SQL that creates the table, whatever its name and that of its schema.
func TestMissingTableIsToldInOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in        schema.Config
		component schema.Component
	}{
		{schema.Config{}, schema.Dedup},
		{schema.Config{Tables: map[string]string{"processed_event": "seen $by 'us'; \"x\""}}, schema.Dedup},
		{schema.Config{Schema: "not there's"}, schema.Outbox},
		{schema.Config{Tables: map[string]string{"outbox_lease": "leases", "processed_event": "seen"}}, schema.Outbox},
		{schema.Config{}, schema.DeadLetter},
	} {
		url := serverstest.DatabaseURL(t)
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		ask := func(ctx context.Context, text string, args ...any) (answer string, err error) {
			return answer, db.QueryRowContext(ctx, text, args...).Scan(&answer)
		}
		found, err := schema.Postgres.Check(t.Context(), ask, &c.in, c.component)
		if err != nil || len(found) == 0 {
			t.Fatalf("%q, %v", found, err)
		}
		missing := 0
		for _, f := range found {
			if f.About != "table" {
				continue // a setting of the server
			}
			missing++
			line := f.String()
			before, command, ok := strings.Cut(line, "what this prints: einmal ")
			if !ok || strings.ContainsAny(line, "\n") || strings.Contains(line, "create table") ||
				!strings.HasPrefix(line, "it does not exist; run: ") {
				t.Fatalf("%q", line)
			}
			if _, first, ok := strings.Cut(before, "; run: create schema "); ok {
				first, _, _ = strings.Cut(first, ";")
				if _, err := db.ExecContext(t.Context(), "create schema if not exists "+first); err != nil {
					t.Fatal(err)
				}
			}
			args, err := osexec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+command).Output()
			if err != nil {
				t.Fatal(err)
			}
			r := einmal(t, "", strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")...)
			r.want(t, exitOK)
			if _, err := db.ExecContext(t.Context(), r.out); err != nil {
				t.Fatalf("%s: %v", r.out, err)
			}
		}
		found, err = schema.Postgres.Check(t.Context(), ask, &c.in, c.component)
		if bad := slices.ContainsFunc(found, func(f schema.Finding) bool {
			return f.Table != "" &&
				f.Level == schema.LevelError
		}); err != nil || bad || missing == 0 {
			t.Errorf("%+v %s: afterwards %q, %v", c.in, c.component, found, err)
		}
		if c.in.Schema != "" {
			_, _ = db.ExecContext(context.Background(), `drop schema "`+c.in.Schema+`" cascade`)
		}
	}
}
