package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// Database is a schema of one test's own, reached directly, whatever way the store under test takes.
type Database struct {
	*pgxpool.Pool
	URL    string // with the schema as search_path
	Schema string // its name
	Layout Layout

	t testing.TB
}

// Open creates the store's table in a fresh schema, and the table effect (name text).
func Open(t testing.TB, layout Layout) *Database {
	t.Helper()
	return OpenAt(t, serverstest.DatabaseURL(t), layout)
}

// OpenAt is Open for another schema than a fresh one of the shared server.
func OpenAt(t testing.TB, url string, layout Layout) *Database {
	t.Helper()
	db := OpenEmpty(t, url)
	db.Layout = layout
	if layout.Schema != "" {
		db.Layout.Schema = db.Schema + layout.Schema
		db.Run("create schema " + pgx.Identifier{db.Layout.Schema}.Sanitize())
		t.Cleanup(func() {
			if _, err := db.Exec(context.Background(), "drop schema "+pgx.Identifier{db.Layout.Schema}.Sanitize()+
				" cascade"); err != nil {
				t.Error(err)
			}
		})
	}
	db.Run(db.Layout.sql())
	db.Run("create table effect (name text not null)")
	return db
}

// OpenAlone is Open in a database of the test's own: nobody else gets the sessions that a pooler keeps for it.
func OpenAlone(t testing.TB, layout Layout) *Database {
	t.Helper()
	ctx := context.Background()
	beside := OpenEmpty(t, serverstest.DatabaseURL(t))
	name := "einmal_" + strings.ToLower(rand.Text())
	beside.Run("create database " + name)
	t.Cleanup(func() {
		if _, err := beside.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	at, err := url.Parse(beside.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/" + name
	conn, err := pgx.Connect(ctx, at.String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(ctx, "create schema "+pgx.Identifier{beside.Schema}.Sanitize())
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return OpenAt(t, at.String(), layout)
}

// OpenEmpty creates nothing.
func OpenEmpty(t testing.TB, url string) *Database {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := &Database{Pool: pool, URL: url, t: t}
	db.Schema = Value[string](db, "select current_schema()")
	return db
}

// Behind returns the URL of the database behind the pooler. Statements must name the schema.
func (db *Database) Behind(pooler string) string {
	db.t.Helper()
	direct, err := url.Parse(db.URL)
	if err != nil {
		db.t.Fatal(err)
	}
	u, err := url.Parse(pooler)
	if err != nil {
		db.t.Fatal(err)
	}
	u.Path = direct.Path
	return u.String()
}

// EffectTable is the table effect with its schema.
func (db *Database) EffectTable() string { return pgx.Identifier{db.Schema, "effect"}.Sanitize() }

// Run runs a text of one or more statements, and fails the test if it cannot.
func (db *Database) Run(sql string) {
	db.t.Helper()
	if _, err := db.Exec(db.t.Context(), sql); err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
}

// Value returns the only value that a query selects.
func Value[T any](db *Database, sql string, args ...any) T {
	db.t.Helper()
	rows, _ := db.Query(db.t.Context(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
	return v
}

// Records counts the rows of the store's table.
func (db *Database) Records() int {
	db.t.Helper()
	return Value[int](db, "select count(*) from "+db.Layout.TableSQL())
}

// Effects counts all effects.
func (db *Database) Effects() int {
	db.t.Helper()
	return Value[int](db, "select count(*) from effect")
}

// EffectsOf is Harness.Effects.
func (db *Database) EffectsOf(ctx context.Context, effect string) (n int, err error) {
	err = db.QueryRow(ctx, "select count(*) from effect where name = $1", effect).Scan(&n)
	return n, err
}

// Waiting is Harness.Waiting: it counts the sessions that wait for a transaction which wrote the same key.
func (db *Database) Waiting(ctx context.Context) (n int, err error) {
	err = db.QueryRow(ctx, `select count(distinct pid) from pg_locks l join pg_locks w using (pid)
		where not l.granted and l.locktype = 'transactionid' and w.relation = $1::regclass`, db.Layout.TableSQL()).Scan(&n)
	return n, err
}

// Eventually waits until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
