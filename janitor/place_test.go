package janitor_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// nearer makes a schema that comes before that of the tables in the search_path of the URL that it returns.
func (db *database) nearer() (name, at string) {
	db.t.Helper()
	u, err := url.Parse(db.url)
	if err != nil {
		db.t.Fatal(err)
	}
	query := u.Query()
	home := query.Get("search_path")
	name = home + "_nearer"
	db.run("create schema " + name)
	db.t.Cleanup(func() { _, _ = db.Exec(context.Background(), "drop schema "+name+" cascade") })
	query.Set("search_path", name+","+home)
	u.RawQuery = query.Encode()
	return name, u.String()
}

// A table that somebody makes in a nearer schema under a janitor that runs has rows that are not its own.
func TestTableStays(t *testing.T) {
	t.Parallel()
	db := open(t)
	name, at := db.nearer()
	pool := viaPgx(pgx.QueryExecModeExec).open(t, at) // a statement that is prepared keeps its table
	t.Cleanup(func() { _ = pool.Close() })
	j := newJanitor(t, pool, schema.Postgres, nil)
	if r := sweep(t, j); r.Deleted != 0 {
		t.Errorf("%+v", r)
	}
	db.run(schema.Postgres.SQL(&schema.Config{Schema: name}, schema.Dedup))
	db.fill("old", 10, 9*day)
	db.run("insert into " + name + ".processed_event table processed_event")
	if r := sweep(t, j); r.Deleted != 10 {
		t.Errorf("%+v", r)
	}
	if mine, others := db.rows("old"), value[int](db, "select count(*) from "+name+".processed_event"); mine != 0 ||
		others != 10 {
		t.Errorf("%d rows are left of the table of the first sweep, want none, %d of the other one, want 10", mine, others)
	}
}

// Likewise partitions: they are made and dropped where the table is.
func TestPartitionsStay(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	name, at := db.nearer()
	pool := viaPgx(pgx.QueryExecModeCacheStatement).open(t, at)
	t.Cleanup(func() { _ = pool.Close() })
	sweep(t, newJanitor(t, pool, schema.Postgres, keepThree))
	if n := value[int](db, "select count(*) from pg_tables where schemaname = $1", name); n > 0 || len(db.partitions()) == 0 {
		t.Errorf("%d partitions are in a schema that is not the table's, %q", n, db.partitions())
	}
}

// A temporary table is not the one that is meant.
func TestTemporaryTableOfSQLite(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	db.SetMaxOpenConns(1)
	fillFile(t, db, "old", 10, 9*day)
	execute(t, db, "create temporary table processed_event (processed_at text)")
	if r := sweep(t, newJanitor(t, db, schema.SQLite, nil)); r.Deleted != 10 {
		t.Errorf("%+v", r)
	}
}

// A session in which somebody has left another role, or another search_path, is given up: a later sweep has one of its own role again.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for name, ranges := range map[string]bool{"rows": false, "partitions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var db *database
			var change func(*janitor.Config)
			if ranges {
				db, change = openRanges(t, "uuid"), keepThree
			} else {
				db = open(t)
			}
			pool := db.via(cached)
			pool.SetMaxOpenConns(2)
			j := newJanitor(t, pool, schema.Postgres, change)
			for _, text := range []string{"set search_path to ''", "set role pg_monitor", "set role pg_monitor"} {
				var both [2]*sql.Conn
				for i := range both {
					conn, err := pool.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := conn.ExecContext(t.Context(), text); err != nil {
						t.Fatal(err)
					}
					both[i] = conn
				}
				for _, conn := range both {
					_ = conn.Close()
				}
				var err error
				for range 3 { // one for each connection
					_, err = j.Sweep(t.Context())
				}
				if err != nil {
					t.Errorf("after %s: Sweep: %v", text, err)
				}
			}
		})
	}
}
