package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/schema"
)

// File is a SQLite database of one test's own, in a file.
type File struct {
	*sql.DB
	t    testing.TB
	path string
}

// NewFile creates the store's table, and the table effect (name text).
func NewFile(t testing.TB) *File {
	t.Helper()
	f := &File{t: t, path: t.TempDir() + "/db"}
	f.DB = f.Open(5000)
	for _, text := range []string{"pragma journal_mode = wal", schema.SQLite.SQL(nil, schema.Dedup),
		"create table effect (name text not null)"} {
		f.Run(text)
	}
	return f
}

// Open opens another pool on the database, with that busy_timeout in milliseconds.
func (f *File) Open(busy int) *sql.DB {
	f.t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", f.path, busy))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = db.Close() })
	return db
}

// Run runs a text of one or more statements, and fails the test if it cannot.
func (f *File) Run(text string) {
	f.t.Helper()
	if _, err := f.ExecContext(f.t.Context(), text); err != nil {
		f.t.Fatalf("%.80s: %v", text, err)
	}
}

// Count returns the number that a query selects.
func (f *File) Count(query string, args ...any) (n int) {
	f.t.Helper()
	if err := f.QueryRowContext(f.t.Context(), query, args...).Scan(&n); err != nil {
		f.t.Fatalf("%.80s: %v", query, err)
	}
	return n
}

// SQLite is a harness on a file. SQLite ends no transaction by itself, nor does it break its connection; what fails in
// it takes back one statement.
func SQLite[Tx any](t testing.TB, kind Kind[Tx], cfg sqlstore.Config) storetest.Harness[Tx] {
	t.Helper()
	f := NewFile(t)
	h := kind.harness("insert into effect (name) values (?1)")
	h.Store, h.Other = kind.New(f.Open(60_000), &cfg), kind.New(f.Open(60_000), &cfg)
	h.Brief = kind.New(f.Open(100), &cfg)
	h.Effects = func(ctx context.Context, effect string) (n int, err error) {
		err = f.QueryRowContext(ctx, "select count(*) from effect where name = ?1", effect).Scan(&n)
		return n, err
	}
	return h
}
