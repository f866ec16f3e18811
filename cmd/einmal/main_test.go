package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// result is what a call of the command left behind.
type result struct {
	code        int
	out, errors string
}

// einmal runs a command as a process of its own would, with that URL in its environment.
func einmal(t *testing.T, url string, args ...string) result {
	t.Helper()
	return answered(t, nil, url, args...)
}

// answered runs a command at a terminal at which somebody answers.
func answered(t *testing.T, stdin io.Reader, url string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	env := &environment{&out, &errs, func(name string) string {
		if name == "EINMAL_DATABASE_URL" {
			return url
		}
		return ""
	}, stdin}
	return result{run(t.Context(), env, args), out.String(), errs.String()}
}

// want fails the test unless the call ended like that, and said all of these.
func (r result) want(t *testing.T, code int, says ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.errors)
	}
	for _, text := range says {
		if !strings.Contains(r.out+r.errors, text) {
			t.Errorf("it does not say %q:\n%s%s", text, r.out, r.errors)
		}
	}
}

// Wrong usage says what to do, and touches nothing. Help is asked for, so it is no error.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "schema check"},
		{"-h", exitOK, "schema check"},
		{"help", exitOK, "schema check"},
		{"schema", exitUsage, "schema apply"},
		{"schema -h", exitOK, "schema apply"},
		{"schema drop", exitUsage, "no such command"},
		{"scheme", exitUsage, "no such command"},
		{"schema print -h", exitOK, "-table name=other"},
		{"schema print dedup -h", exitOK, "Components: dedup"},
		{"schema check -h", exitOK, "-json"},
		{"schema apply -h", exitOK, "EINMAL_DATABASE_URL"},
		{"schema print", exitUsage, "-db"},
		{"schema print -db oracle", exitUsage, "postgres or sqlite"},
		{"schema print -db postgres deduplication", exitUsage,
			"deduplication is no component of postgres: they are dedup deadletter crashloop"},
		{"schema print -db postgres -table events=x", exitUsage, "no such table: they are processed_event"},
		{"schema print -db postgres -table processed_event", exitUsage, "want name=other"},
		{"schema print -db postgres -table processed_event=" + strings.Repeat("x", 64), exitUsage, "63 bytes"},
		{"schema print -db sqlite -schema s", exitUsage, "SQLite has no schemas"},
		{"schema print -frobnicate", exitUsage, "-h lists the flags"},
		{"schema check -db postgres", exitUsage, "EINMAL_DATABASE_URL"},
		{"schema apply -db sqlite", exitUsage, "EINMAL_DATABASE_URL"},
		{"schema check -url file:x -role r", exitUsage, "SQLite has no roles"},
		{"version", exitOK, "einmal "},
		{"version x", exitUsage, "no arguments"},
	} {
		r := einmal(t, "", strings.Fields(c.args)...)
		r.want(t, c.code, c.says)
		if (c.code == exitOK) != (r.errors == "") {
			t.Errorf("%q: on standard error: %q", c.args, r.errors)
		}
	}
}

// Every command says what it is, and each has a name of its own that dispatch finds.
func TestCommandsExplainThemselves(t *testing.T) {
	t.Parallel()
	for _, c := range commands {
		if c.about == "" {
			t.Errorf("%s has nothing to say", c.name)
		}
		einmal(t, "", append(strings.Fields(c.name), "-h")...).want(t, exitOK, "usage: einmal "+c.name+" ", c.about)
	}
}

func TestSchemaPrint(t *testing.T) {
	t.Parallel()
	r := einmal(t, "", "schema", "print", "-db", "postgres")
	r.want(t, exitOK)
	if r.out != schema.Postgres.SQL(nil) {
		t.Errorf("it printed %s", r.out)
	}
	r = einmal(t, "postgres://x", "schema", "print", "-schema", "s", "dedup", "-table", "processed_event=seen") // the URL tells which
	if cfg := (&schema.Config{Schema: "s",
		Tables: map[string]string{"processed_event": "seen"}}); r.out != schema.Postgres.SQL(cfg, schema.Dedup) {
		t.Errorf("it printed %s", r.out)
	}
	if r := einmal(t, "", "schema", "print", "-db=sqlite"); r.out != schema.SQLite.SQL(nil) {
		t.Errorf("it printed %s", r.out)
	}
}

// check says no, apply creates, check says yes, apply says that it was there.
func TestSchemaOnPostgres(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "check", "dedup").want(t, exitNo, "error: processed_event: it does not exist", "create table")
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK, "processed_event: created")
	einmal(t, url, "schema", "check", "dedup").want(t, exitOK, "errors: 0")
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK, "processed_event: was there\n")
	einmal(t, "", "schema", "check", "dedup", "-url", url).want(t, exitOK, "errors: 0")
}

// Without a name, check looks at what is used: all of it where nothing is.
func TestCheckOfWhatIsThere(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "check").want(t, exitNo, "processed_event: it does not exist",
		"outbox_event: it does not exist")
	einmal(t, url, "schema", "apply", "dedup", "outbox").want(t, exitOK)
	r := einmal(t, url, "schema", "check")
	r.want(t, exitOK, "errors: 0", "not there, and not looked at: ", "deadletter", "name what you use")
	if strings.Contains(r.out, "it does not exist") {
		t.Error(r.out)
	}
	einmal(t, url, "schema", "check", "-json").want(t, exitOK, `"ok": true`, `"unused": [`)
	einmal(t, url, "schema", "check", "outbox", "deadletter").want(t, exitNo, "it does not exist")
	einmal(t, url, "schema", "check", "-table", "processed_event=seen").want(t, exitNo, "seen: it does not exist")
}

// What apply cannot put right it says, and what it can it says too.
func TestApplyDoesNotAlter(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	exec(t, url, "create table processed_event (event_id text not null, consumer_id text not null, processed_at timestamptz default now(), primary key (event_id, consumer_id))")
	r := einmal(t, url, "schema", "apply", "dedup")
	r.want(t, exitNo, "processed_event: was there; put right: it has no index on (processed_at)",
		"error: processed_event: its column duplicates is missing")
}

// It is one transaction: where the index cannot be made, the table before it does not stay.
func TestApplyIsOneTransaction(t *testing.T) {
	t.Parallel()
	path := "file:" + filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "create table processed_event_time (x)"); err != nil { // it has the index's name
		t.Fatal(err)
	}
	einmal(t, path, "schema", "apply", "dedup").want(t, exitNo, "001_processed_event.sql", "processed_event_time")
	einmal(t, path, "schema", "check", "dedup").want(t, exitNo, "it does not exist")
}

func TestCheckTellsWarningsFromErrors(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	exec(t, url, "alter table processed_event add id serial, reset (fillfactor)")
	einmal(t, url, "schema", "check", "dedup").want(t, exitOK, "warning: processed_event: its column id",
		"warning: processed_event: processed_event has no fillfactor")
	einmal(t, url, "schema", "check", "-strict", "dedup").want(t, exitNo, "warning: processed_event: its column id")
	exec(t, url, "create unique index narrow on processed_event (event_id)")
	einmal(t, url, "schema", "check", "dedup").want(t, exitNo, "error: processed_event: its unique index narrow",
		"drop index narrow;")
}

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	var answer struct {
		OK               bool
		Errors, Warnings int
		Findings         []schema.Finding
	}
	for _, c := range []struct {
		harm   string
		code   int
		errors int
	}{
		{"select 1", exitNo, 1},
		{schema.Postgres.SQL(nil, schema.Dedup), exitOK, 0},
	} {
		exec(t, url, c.harm)
		r := einmal(t, url, "schema", "check", "-json", "dedup")
		r.want(t, c.code)
		if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
			t.Fatalf("%v: %s", err, r.out)
		}
		if answer.OK != (c.errors == 0) || answer.Errors != c.errors ||
			len(answer.Findings) != answer.Errors+answer.Warnings {
			t.Errorf("it answered %s", r.out)
		}
	}
	if !strings.Contains(einmal(t, url, "schema", "check", "-json", "dedup").out, `"findings": [`) {
		t.Error("no findings are null, want an empty list")
	}
}

// A name in a schema is read without quotes, whichever of the two has them.
func TestNamesAreReadWithoutQuotes(t *testing.T) {
	t.Parallel()
	for quoted, want := range map[string]string{
		`processed_event`: "processed_event", `"app".processed_event`: "app.processed_event",
		`"app"."seen ""by"" us"`: `app.seen "by" us`, `"a.b"."c"`: "a.b.c",
	} {
		if got := unquoted(quoted); got != want {
			t.Errorf("%s is read as %s, want %s", quoted, got, want)
		}
	}
}

// The indexes of a table that was renamed have the names that the new one needs. apply says whose they are, and does
// nothing.
func TestApplyWhereANameIsTaken(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	exec(t, url, "alter table processed_event rename to seen")
	einmal(t, url, "schema", "apply", "dedup").want(t, exitNo, "processed_event cannot be created",
		"the name processed_event_pkey", "an index of seen", "rename to")
	exec(t, url, "alter index processed_event_pkey rename to seen_pkey; alter index processed_event_time rename to seen_time")
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK, "processed_event: created")
}

// The role is that whose privileges count.
func TestCheckAsARole(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	einmal(t, url, "schema", "check", "-role", "pg_monitor", "dedup").want(t, exitNo) // it may not even use the schema
	einmal(t, url, "schema", "check", "-role", "no such role", "dedup").want(t, exitNo, "become the role no such role")
}

func TestSchemaOnSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	for _, dsn := range []string{"file:" + path, path} {
		einmal(t, dsn, "schema", "check", "-db", "sqlite", "dedup").want(t, exitNo, "there is no database")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("check created the file")
	}
	einmal(t, "file:"+path, "schema", "apply", "dedup").want(t, exitOK, "processed_event: created")
	einmal(t, "file:"+path+"?mode=ro", "schema", "check", "dedup").want(t, exitOK, "errors: 0, warnings: 0")
	einmal(t, path, "schema", "apply", "-db", "sqlite", "dedup").want(t, exitOK, "processed_event: was there\n")
	einmal(t, path, "schema", "check", "-db", "sqlite", "dedup", "-table", `processed_event=seen "by" us`).want(t, exitNo,
		`seen "by" us: it does not exist`)
	einmal(t, path, "schema", "apply", "-db", "sqlite", "dedup", "-table", `processed_event=seen "by" us`).want(t, exitOK,
		`seen "by" us: created`)
}

// No output has a password, whatever is wrong with the URL, and wherever it stands.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "t0ps3cret"
	at.User = url.UserPassword("nobody-of-that-name", secret)
	for _, dsn := range []string{
		at.String(),
		"postgres://user:" + secret + "@127.0.0.1:1/db",
		"postgres://user:" + secret + "/x@127.0.0.1/db",
		"postgres://user:%" + secret + "@127.0.0.1/db",
		"postgres://user:x@" + secret + ":@127.0.0.1:1:1/db",
		"host=127.0.0.1 port=1 user=x password='" + secret,
		"host=127.0.0.1 port=x password=" + secret,
		"file:/nowhere/db?_pragma=key('" + secret + "')",
	} {
		for _, args := range [][]string{{"schema", "check", "-db", "postgres"}, {"schema", "apply", "-db", "postgres"},
			{"schema", "check"}, {"schema", "check", dsn}, {"schema", "check", "-ulr=" + dsn},
			{"schema", "check", "-url", dsn, "-json"}, {dsn}} {
			r := einmal(t, dsn, args...)
			if strings.Contains(r.out+r.errors, secret) {
				t.Errorf("%q shows the password of %s: %s%s", args, dsn, r.out, r.errors)
			}
			if r.code == exitOK {
				t.Errorf("%q with %s: exit code 0", args, dsn)
			}
		}
	}
}

// exec runs SQL on a database.
func exec(t *testing.T, url, sql string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
