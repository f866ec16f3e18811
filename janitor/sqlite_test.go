package janitor_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// openFile opens a database in a file of one test's own, with the store's table.
func openFile(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	execute(t, db, schema.SQLite.SQL(nil))
	return db
}

func execute(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%.80s: %v", text, err)
	}
}

func count(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%.80s: %v", query, err)
	}
	return n
}

// fillFile records n events of that age.
func fillFile(t testing.TB, db *sql.DB, consumer string, n int, age time.Duration) {
	t.Helper()
	execute(t, db, `with recursive g(i) as (select 1 union all select i + 1 from g where i < ?1)
		insert into processed_event (event_id, consumer_id, processed_at)
		select hex(randomblob(16)), ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?3) from g`, n, consumer, fmt.Sprintf("-%.3f seconds", age.Seconds()))
}

func TestSweepSQLite(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	fillFile(t, db, "old", 250, day+janitor.DefaultMargin+time.Minute)
	fillFile(t, db, "in the margin", 10, day+janitor.DefaultMargin-time.Minute)
	fillFile(t, db, "young", 10, 0)
	j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) { cfg.Batch = 100 })
	if r := sweep(t, j); r.Deleted != 250 || r.Batches != 3 || r.Busy {
		t.Errorf("%+v", r)
	}
	if old, left := count(t, db, "select count(*) from processed_event where consumer_id = 'old'"),
		count(t, db, "select count(*) from processed_event"); old != 0 || left != 20 {
		t.Errorf("%d old rows are left, %d in all", old, left)
	}
	if r := sweep(t, j); r.Deleted != 0 {
		t.Errorf("again: %+v", r)
	}
}

// A sweep pauses between its batches, so that others get their turn, and not before the first one.
func TestSweepPausesBetweenBatches(t *testing.T) {
	t.Parallel()
	const pause = 400 * time.Millisecond
	db := openFile(t)
	fillFile(t, db, "old", 30, 9*day)
	j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) { cfg.Batch, cfg.Pause = 10, pause })
	if r := sweep(t, j); r.Deleted != 30 || r.Batches < 3 || r.Duration < time.Duration(r.Batches-1)*pause/2 {
		t.Errorf("%+v: want a pause of %v at least before each batch but the first", r, pause/2)
	}
}

// A table with a rowid, with another key, and with a condition.
func TestSweepOtherTablesOfSQLite(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	execute(t, db, `create table plain (at text, status text);
		create table "with ""key" (id integer primary key, at text, status text);
		insert into plain values ('2020-01-01T00:00:00.000Z', 'x'), ('2020-01-01T00:00:00.000Z', 'y'), ('2999-01-01T00:00:00.000Z', 'x');
		insert into "with ""key" (at, status) select at, status from plain;`)
	j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) {
		cfg.Tables = []janitor.Table{
			{Name: "plain", Column: "at", Keep: day, Where: "status = 'x' or status = 'z'"},
			{Name: `with "key`, Column: "at", Keep: day},
		}
	})
	reports, err := j.Sweep(t.Context())
	if err != nil || reports[0].Deleted != 1 || reports[1].Deleted != 2 {
		t.Errorf("%+v, %v", reports, err)
	}
	missing := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) { cfg.Tables[0].Name = "missing" })
	if _, err := missing.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "no such table: main.missing") {
		t.Errorf("a missing table: %v", err)
	}
}

// Consumers and the janitor take turns: no call fails, and each event takes effect once.
func TestSweepSQLiteBesideConsumers(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	execute(t, db, "create table effect (name text not null)")
	fillFile(t, db, "old", 3000, 9*day)
	j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) { cfg.Batch = 50 })
	end := start(t, j.Run)
	store := sqlstore.New(db, schema.SQLite, nil)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 50 {
				for range 2 {
					_, err := store.Once(t.Context(), dedupstore.Key{Consumer: "c", Event: fmt.Sprint(worker, "/", i)},
						func(ctx context.Context, tx *sql.Tx) error {
							_, err := tx.ExecContext(ctx, "insert into effect values ('x')")
							return err
						})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all is swept", func() bool { return j.Status().Tables[0].Deleted == 3000 })
	if err := end(); err != nil {
		t.Error(err)
	}
	if effects, failures := count(t, db, "select count(*) from effect"), j.Status().Tables[0].Failures; effects != 200 ||
		failures != 0 {
		t.Errorf("%d effects of 200 events, %d sweeps failed", effects, failures)
	}
}

func TestSweepExpiredKeysOfSQLite(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	for key, expires := range map[string]string{"expired": "-4 hours", "in the margin": "-2 hours", "valid": "+1 day"} {
		execute(t, db, `insert into idempotency_key (scope, key, fingerprint, status_code, expires_at)
			values ('', '`+key+`', x'00', 200, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '`+expires+`'))`)
	}
	j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) {
		cfg.Tables = []janitor.Table{{Name: "idempotency_key", Column: "expires_at", Keep: time.Hour}}
	})
	if r := sweep(t, j); r.Deleted != 1 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if n := count(t, db, "select count(*) from idempotency_key where key <> 'expired'"); n != 2 {
		t.Errorf("%d of the others are left, want 2", n)
	}
}
