package schema_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

var dialects = []schema.Dialect{schema.Postgres, schema.SQLite}

func TestMain(m *testing.M) { serverstest.Main(m) }

func execOn(pool *pgxpool.Pool) func(context.Context, string) error {
	return func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
}

// insert writes a row by the names that the files must have created.
func insert(t *testing.T, pool *pgxpool.Pool, table string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "insert into "+table+" (event_id, consumer_id) values ('e', 'c')"); err != nil {
		t.Errorf("after Apply: %v", err)
	}
}

func TestApplyTwice(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	for range 2 {
		if err := schema.Postgres.Apply(t.Context(), execOn(pool), nil); err != nil {
			t.Fatal(err)
		}
	}
	insert(t, pool, "processed_event")
}

func TestApplyAtOnce(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	start, all := make(chan struct{}), sync.WaitGroup{}
	for range 8 {
		all.Go(func() {
			<-start
			if err := schema.Postgres.Apply(t.Context(), execOn(pool), nil); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	insert(t, pool, "processed_event")
}

// Without a search_path, every name that was left unqualified is an error.
func TestApplyToAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := withoutSearchPath(t)
	for _, name := range []string{`plain`, `With "quotes" and $1 ${1}`} {
		quoted := pgx.Identifier{uniqueSchema(t, pool, name)}
		cfg := &schema.Config{Schema: quoted[0]}
		for range 2 {
			if err := schema.Postgres.Apply(t.Context(), execOn(pool), cfg); err != nil {
				t.Fatalf("schema %s: %v", name, err)
			}
		}
		insert(t, pool, quoted.Sanitize()+".processed_event")
	}
}

// Under another name, the table's constraint and index follow, also where PostgreSQL would cut their names off.
func TestAnotherName(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	for _, name := range []string{`Seen "by" us$1`, strings.Repeat("long", 15) + "end", strings.Repeat("ä", 31)} {
		for range 2 {
			if err := schema.Postgres.Apply(t.Context(), execOn(pool),
				&schema.Config{Tables: map[string]string{"processed_event": name}}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		insert(t, pool, pgx.Identifier{name}.Sanitize())
		var indexes int
		if err := pool.QueryRow(t.Context(),
			"select count(*) from pg_indexes where tablename = $1 and schemaname = current_schema()",
			name).Scan(&indexes); err != nil || indexes != 2 {
			t.Errorf("%s: %d indexes, %v, want 2", name, indexes, err)
		}
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, cfg := range []*schema.Config{nil, {Tables: map[string]string{"processed_event": `Seen "by" us`}}} {
		for range 2 {
			err := schema.SQLite.Apply(t.Context(), func(ctx context.Context, sql string) error {
				_, err := db.ExecContext(ctx, sql)
				return err
			}, cfg)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, table := range []string{"processed_event", `"Seen ""by"" us"`} {
		var age float64 // of the row, in seconds
		if err := db.QueryRowContext(t.Context(), "insert into "+table+" (event_id, consumer_id) values ('e', 'c') "+
			"returning (julianday('now') - julianday(processed_at)) * 86400").Scan(&age); err != nil || age < -1 || age > 60 {
			t.Errorf("%s: a row is %v s old, %v", table, age, err)
		}
	}
}

func TestSQLIsWhatApplyRuns(t *testing.T) {
	t.Parallel()
	pool := withoutSearchPath(t)
	name := uniqueSchema(t, pool, "printed")
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(&schema.Config{Schema: name})); err != nil {
		t.Fatal(err)
	}
	insert(t, pool, pgx.Identifier{name}.Sanitize()+".processed_event")
}

func withoutSearchPath(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = ""
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// uniqueSchema creates a schema that no other test has, and drops it in the end.
func uniqueSchema(t *testing.T, pool *pgxpool.Pool, name string) string {
	t.Helper()
	name += " " + rand.Text()
	quoted := pgx.Identifier{name}.Sanitize()
	if _, err := pool.Exec(t.Context(), "create schema "+quoted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "drop schema "+quoted+" cascade"); err != nil {
			t.Error(err)
		}
	})
	return name
}

func TestApplyNamesTheFileThatFailed(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	err := schema.Postgres.Apply(t.Context(), func(context.Context, string) error { return broken }, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "001_processed_event.sql") {
		t.Errorf("Apply() = %v", err)
	}
}

// Every file of the directory is embedded, listed in order, and says whose it is. A number stands for one file, in
// every dialect.
func TestFiles(t *testing.T) {
	t.Parallel()
	numbered := map[string]string{}
	for _, dialect := range dialects {
		names, err := fs.Glob(os.DirFS(string(dialect)), "*")
		if err != nil {
			t.Fatal(err)
		}
		list := dialect.Files()
		if len(list) != len(names) {
			t.Fatalf("%d files are listed, the directory %s has %d", len(list), dialect, len(names))
		}
		for i, file := range list {
			if file.Name != names[i] || !regexp.MustCompile(`^\d{3}_\w+\.sql$`).MatchString(file.Name) {
				t.Errorf("file %d of %s is called %s", i+1, dialect, file.Name)
			}
			if other, ok := numbered[file.Name[:3]]; ok && other != file.Name {
				t.Errorf("%s and %s have one number", file.Name, other)
			}
			numbered[file.Name[:3]] = file.Name
			if !strings.HasPrefix(file.SQL, "-- "+string(file.Component)+": ") || file.Component == "" {
				t.Errorf("%s/%s does not name its component in its first line", dialect, file.Name)
			}
		}
	}
}

func TestUnknownNamesPanic(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(){
		"dialect":   func() { schema.Dialect("oracle").Files() },
		"component": func() { schema.Postgres.Files("deduplication") },
		"table":     func() { schema.Postgres.SQL(&schema.Config{Tables: map[string]string{"processed_events": "x"}}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
