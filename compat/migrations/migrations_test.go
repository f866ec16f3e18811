// Package migrations has the tests of the files of package schema in the hands of goose, golang-migrate and atlas, as
// docs/schema.md tells their users to take them.
package migrations

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"ariga.io/atlas/sql/migrate"
	atlaspostgres "ariga.io/atlas/sql/postgres"
	atlassqlite "ariga.io/atlas/sql/sqlite"
	golangmigrate "github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// down is what a user writes to take the tables back.
func down(dialect schema.Dialect) (sql string) {
	for _, table := range dialect.Tables() {
		sql = "drop table " + table + ";\n" + sql
	}
	return sql
}

// onEach runs a test for each dialect, on an empty database.
func onEach(t *testing.T, test func(t *testing.T, dialect schema.Dialect, db *sql.DB)) {
	t.Helper()
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			driver, at := "sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(5000)"
			if dialect == schema.Postgres {
				driver, at = "pgx", serverstest.DatabaseURL(t)
			}
			db, err := sql.Open(driver, at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			test(t, dialect, db)
		})
	}
}

// findings are the errors and warnings of Check: none if the files did all that they say.
func findings(t *testing.T, dialect schema.Dialect, db *sql.DB) (found []schema.Finding) {
	t.Helper()
	all, err := dialect.Check(t.Context(), func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = db.QueryRowContext(ctx, sql, args...).Scan(&text)
		return text, err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Table != "" {
			found = append(found, f)
		}
	}
	return found
}

// wantAll fails the test unless the tables are as they should be.
func wantAll(t *testing.T, dialect schema.Dialect, db *sql.DB) {
	t.Helper()
	if found := findings(t, dialect, db); len(found) > 0 {
		t.Errorf("after the migration: %q", found)
	}
}

// wantNone fails the test unless all tables are gone.
func wantNone(t *testing.T, dialect schema.Dialect, db *sql.DB) {
	t.Helper()
	gone := 0
	for _, f := range findings(t, dialect, db) {
		if f.About == "table" {
			gone++
		}
	}
	if want := len(dialect.Tables()); gone != want {
		t.Errorf("after the way down: %d tables are gone, want %d", gone, want)
	}
}

func TestGoose(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dialect schema.Dialect, db *sql.DB) {
		files := fstest.MapFS{"20260102150405_einmal.sql": {Data: []byte("-- +goose Up\n" + dialect.SQL(nil) +
			"\n-- +goose Down\n" + down(dialect))}}
		provider, err := goose.NewProvider(map[schema.Dialect]goose.Dialect{schema.Postgres: goose.DialectPostgres,
			schema.SQLite: goose.DialectSQLite3}[dialect], db, files)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := provider.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantAll(t, dialect, db)
		}
		if _, err := provider.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantNone(t, dialect, db)
	})
}

func TestGolangMigrate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dialect schema.Dialect, db *sql.DB) {
		source, err := iofs.New(fstest.MapFS{
			"20260102150405_einmal.up.sql":   {Data: []byte(dialect.SQL(nil))},
			"20260102150405_einmal.down.sql": {Data: []byte(down(dialect))},
		}, ".")
		if err != nil {
			t.Fatal(err)
		}
		var target database.Driver
		if dialect == schema.Postgres {
			target, err = migratepgx.WithInstance(db, &migratepgx.Config{})
		} else {
			target, err = migratesqlite.WithInstance(db, &migratesqlite.Config{})
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := golangmigrate.NewWithInstance("iofs", source, string(dialect), target)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Up(); err != nil {
			t.Fatal(err)
		}
		wantAll(t, dialect, db)
		if err := m.Up(); !errors.Is(err, golangmigrate.ErrNoChange) {
			t.Errorf("Up again: %v", err)
		}
		if err := m.Down(); err != nil {
			t.Fatal(err)
		}
		wantNone(t, dialect, db)
		if source, database := m.Close(); source != nil || database != nil {
			t.Error(source, database)
		}
	})
}

// ownDatabase replaces the connection to a schema by one to a database without any other: Atlas looks at all schemas
// that there are.
func ownDatabase(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	name := "einmal_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	query.Set("search_path", "public")
	at.Path, at.RawQuery = "/"+name, query.Encode()
	own, err := sql.Open("pgx", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = own.Close()
		if _, err := db.ExecContext(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	return own
}

// Atlas cuts the file into statements, and runs each by itself.
func TestAtlas(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dialect schema.Dialect, db *sql.DB) {
		if dialect == schema.Postgres {
			db = ownDatabase(t, db)
		}
		dir := &migrate.MemDir{}
		if err := dir.WriteFile("20260102150405_einmal.sql", []byte(dialect.SQL(nil))); err != nil {
			t.Fatal(err)
		}
		sum, err := dir.Checksum() // as atlas migrate hash does
		if err != nil {
			t.Fatal(err)
		}
		if err := migrate.WriteSumFile(dir, sum); err != nil {
			t.Fatal(err)
		}
		open := atlaspostgres.Open
		if dialect == schema.SQLite {
			open = atlassqlite.Open
		}
		driver, err := open(db)
		if err != nil {
			t.Fatal(err)
		}
		executor, err := migrate.NewExecutor(driver, dir, migrate.NopRevisionReadWriter{})
		if err != nil {
			t.Fatal(err)
		}
		if err := executor.ExecuteN(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		wantAll(t, dialect, db)
	})
}
