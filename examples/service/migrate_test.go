package main

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
	"golang.org/x/sync/errgroup"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// components are those whose tables the service needs.
var components = []schema.Component{schema.Dedup, schema.DeadLetter, schema.Outbox, schema.Idempotency}

// TestMigrationsHaveEinmalsSQL compares the migrations *_einmal*.sql, one after the other, with the files of package
// schema. A later version of einmal may add some: put them into a migration of their own, which comes after those
// that have been run.
func TestMigrationsHaveEinmalsSQL(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations, "migrations/*_einmal*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	var got strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down\n")
		got.WriteString(strings.TrimPrefix(up, "-- +goose Up\n"))
	}
	if want := schema.Postgres.SQL(nil, components...); strings.TrimSpace(got.String()) != strings.TrimSpace(want) {
		t.Errorf("%q are not what this prints: einmal schema print -db postgres %s", names,
			"dedup deadletter outbox idempotency")
	}
}

// TestMigrate has several processes begin at once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	var processes errgroup.Group
	for range 3 {
		processes.Go(func() error { return migrate(t.Context(), testLog(t), url) })
	}
	if err := processes.Wait(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	ask := func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}
	findings, err := schema.Postgres.Check(t.Context(), ask, nil, components...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Table != "" { // what is said of the server is said of the test's
			t.Errorf("after the migrations: %+v", f)
		}
	}
}

// TestMigrateWaits holds the lock that migrations take, and looks that nothing is migrated meanwhile.
func TestMigrateWaits(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", lock.DefaultLockID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := migrate(ctx, testLog(t), url); err == nil {
		t.Error("it has migrated beside another process")
	}
}
