package janitor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/internal/sqlstate"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// What is older than Keep and Margin goes, in batches; all else stays.
func TestSweepDeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.fill("old", 2500, day+janitor.DefaultMargin+time.Minute)
			db.fill("in the margin", 100, day+janitor.DefaultMargin-time.Minute)
			db.fill("young", 100, 0)
			j := newJanitor(t, db.via(d), schema.Postgres, nil)
			r := sweep(t, j)
			if r.Deleted != 2500 || r.Batches != 3 || r.Busy || r.Err != nil || r.Table != "processed_event" || r.Duration <= 0 {
				t.Errorf("%+v, want 2500 rows in 3 batches", r)
			}
			if old, margin, young := db.rows("old"), db.rows("in the margin"), db.rows("young"); old != 0 || margin != 100 ||
				young != 100 {
				t.Errorf("%d old rows, %d in the margin, %d young ones are left", old, margin, young)
			}
			if r := sweep(t, j); r.Deleted != 0 || r.Batches != 0 {
				t.Errorf("again: %+v", r)
			}
			status := j.Status()
			if s := status.Tables[0]; status.Sweeping || s.Sweeps != 2 || s.Deleted != 2500 || s.Batches != 3 ||
				s.Last.Deleted != 0 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// Rows of the same time are not skipped by the batch that begins where the last one ended.
func TestSweepManyRowsOfOneTime(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.run(`insert into processed_event (event_id, consumer_id, processed_at) select g::text, 'old', now() - interval '9 days' from generate_series(1, 250) g`)
	j := db.newJanitor(func(cfg *janitor.Config) { cfg.Batch = 100 })
	if r := sweep(t, j); r.Deleted != 250 || r.Batches != 3 {
		t.Errorf("%+v", r)
	}
}

// A row that a consumer holds is left alone, and nobody waits.
func TestSweepSkipsWhatIsHeld(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 99, 9*day)
	db.run("insert into processed_event (event_id, consumer_id, processed_at) values ('held', 'old', now() - interval '10 days')")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(),
		"update processed_event set duplicates = duplicates + 1 where event_id = 'held'"); err != nil {
		t.Fatal(err)
	}
	j := db.newJanitor(nil)
	if r := sweep(t, j); r.Deleted != 99 {
		t.Errorf("%+v, want 99 rows", r)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := sweep(t, j); r.Deleted != 1 {
		t.Errorf("%+v, want the row that was held", r)
	}
}

// paused starts a sweep that stands in the pause before its second batch, and returns what ends it.
func (db *database) paused(j *janitor.Janitor) (end func() error) {
	db.t.Helper()
	before := db.rows("old")
	end = start(db.t, func(ctx context.Context) error {
		_, err := j.Sweep(ctx)
		return err
	})
	eventually(db.t, "the first batch is deleted", func() bool { return db.rows("old") < before })
	eventually(db.t, "the second one begins", func() bool {
		return value[int](db, `select count(*) from pg_locks where locktype = 'advisory' and classid = hashtext('einmal janitor')::bigint & 4294967295
			and objid = hashtext('processed_event'::regclass::oid::text)::bigint & 4294967295 and granted`) > 0
	})
	return end
}

func slow(cfg *janitor.Config) { cfg.Batch, cfg.Pause = 10, time.Minute }

// One janitor at a time, and the other one goes on when it has ended, however that happened.
func TestOneJanitorAtATime(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(db *database, end func() error) error{
		"cancelled": func(_ *database, end func() error) error { return end() },
		"connection lost": func(db *database, _ func() error) error {
			db.run(`select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and classid = hashtext('einmal janitor')::bigint & 4294967295
				and objid = hashtext('processed_event'::regclass::oid::text)::bigint & 4294967295`)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.fill("old", 50, 9*day)
			first, second := db.newJanitor(slow), db.newJanitor(nil)
			end := db.paused(first)
			if !first.Status().Sweeping {
				t.Error("the first one is not sweeping")
			}
			if r := sweep(t, second); !r.Busy || r.Deleted != 0 {
				t.Errorf("beside another one: %+v, want Busy", r)
			}
			if err := stop(db, end); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			eventually(t, "the second one sweeps", func() bool { return !sweep(t, second).Busy })
			if n := db.rows("old"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
			if s := second.Status().Tables[0]; s.Busy == 0 || s.Sweeps == 0 || s.Deleted != 40 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The sweep of another table does not wait.
func TestOneJanitorForEachTable(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 50, 9*day)
	db.run("create table other (at timestamptz primary key); insert into other values (now() - interval '9 days')")
	end := db.paused(db.newJanitor(slow))
	other := db.newJanitor(func(cfg *janitor.Config) {
		cfg.Tables = []janitor.Table{{Name: "other", Column: "at", Keep: day}}
	})
	if r := sweep(t, other); r.Busy || r.Deleted != 1 {
		t.Errorf("%+v", r)
	}
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// In its pause a janitor holds nothing that a redelivery waits for.
func TestNobodyWaitsForThePause(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 50, 9*day)
	_ = db.paused(db.newJanitor(slow))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tag, err := db.Exec(ctx, "update processed_event set duplicates = duplicates + 1 where consumer_id = 'old'")
	if err != nil || tag.RowsAffected() != 40 {
		t.Errorf("%v, %v", tag, err)
	}
}

// A ctid names a row in each partition; only the old one is deleted.
func TestSweepOfPartitionsByHash(t *testing.T) {
	t.Parallel()
	db := openEmpty(t)
	db.run(`create table processed_event (event_id text collate "C" not null, consumer_id text collate "C" not null,
		processed_at timestamptz not null default clock_timestamp(), primary key (event_id, consumer_id)) partition by hash (event_id);
		create table part0 partition of processed_event for values with (modulus 2, remainder 0);
		create table part1 partition of processed_event for values with (modulus 2, remainder 1);
		create index on processed_event (processed_at);`)
	// both partitions get rows at the same places; those of the first one are old
	db.fill("old", 400, 0)
	db.run("update part0 set processed_at = now() - interval '9 days'; delete from part1 where event_id in (select event_id from part1 offset 150)")
	db.run("vacuum full part0")
	db.run("vacuum full part1")
	old, young := value[int64](db, "select count(*) from part0"), value[int64](db, "select count(*) from part1")
	shared := value[int](db, "select count(*) from part0 join part1 on part0.ctid = part1.ctid")
	if old < 100 || young < 100 || shared < 30 {
		t.Fatalf("%d old rows, %d young ones, %d places in both", old, young, shared)
	}
	r := sweep(t, db.newJanitor(func(cfg *janitor.Config) { cfg.Batch = 50 }))
	if left0, left1 := value[int64](db, "select count(*) from part0"),
		value[int64](db, "select count(*) from part1"); r.Deleted != old || left0 != 0 || left1 != young {
		t.Errorf("%+v: %d of %d old rows are left, and %d of %d young ones", r, left0, old, left1, young)
	}
}

// Any table will do, with a condition; a name may be odd, and several tables are swept in turn.
func TestSweepOtherTables(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.run(`create schema if not exists "` + value[string](db, "select current_schema()") + ` b";
		create table "` + value[string](db, "select current_schema()") + ` b"."out ""box" (id bigint generated always as identity primary key, status text, "published At" timestamptz);`)
	odd := value[string](db, "select current_schema()") + " b"
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop schema "`+odd+`" cascade`) })
	db.run(`create index on "` + odd + `"."out ""box" ("published At");
		insert into "` + odd + `"."out ""box" (status, "published At") select s, now() - interval '9 days' from unnest(array['PUBLISHED', 'DEAD', null]) s;
		insert into "` + odd + `"."out ""box" (status, "published At") values ('SENT', now())`)
	db.fill("old", 5, 9*day)
	var seen []janitor.Report
	j := db.newJanitor(func(cfg *janitor.Config) {
		cfg.Tables = append(cfg.Tables, janitor.Table{
			Schema: odd, Name: `out "box`, Column: "published At", Keep: time.Hour, Margin: time.Nanosecond,
			Where: "status = 'PUBLISHED' or status = 'SENT'",
		})
		cfg.OnSweep = func(r janitor.Report) { seen = append(seen, r) }
	})
	reports, err := j.Sweep(t.Context())
	if err != nil || len(reports) != 2 || reports[0].Deleted != 5 || reports[1].Deleted != 1 || len(seen) != 2 {
		t.Errorf("%+v, %v; the hook saw %d", reports, err, len(seen))
	}
	left := value[[]string](db, `select array_agg(coalesce(status, 'null') order by status) from "`+odd+`"."out ""box"`)
	if !slices.Equal(left, []string{"DEAD", "SENT", "null"}) {
		t.Errorf("left: %q", left)
	}
}

// A failed sweep says which table and step, the others are swept, and Run goes on until it succeeds.
func TestRunGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	db := openEmpty(t)
	db.run("create table other (at timestamptz primary key); insert into other values (now() - interval '9 days')")
	j := db.newJanitor(func(cfg *janitor.Config) {
		cfg.Tables = append(cfg.Tables, janitor.Table{Name: "other", Column: "at", Keep: day})
	})
	end := start(t, j.Run)
	eventually(t, "the first sweep has failed", func() bool {
		return j.Status().Tables[0].Failures > 0 &&
			j.Status().Tables[1].Deleted == 1
	})
	if err := j.Status().Tables[0].Last.Err; err == nil ||
		!strings.Contains(err.Error(), "processed_event does not exist") {
		t.Errorf("%v", err)
	}
	db.run(schema.Postgres.SQL(nil))
	db.fill("old", 5, 9*day)
	eventually(t, "the rows are swept", func() bool { return j.Status().Tables[0].Deleted == 5 })
	eventually(t, "and again", func() bool { return j.Status().Tables[0].Sweeps > 2 })
	if err := end(); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// Run returns nil when its context ends in the midst of a sweep, and leaves nothing behind.
func TestRunEndsInTheMidst(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 50, 9*day)
	j := db.newJanitor(slow)
	end := start(t, j.Run)
	eventually(t, "the first batch is deleted", func() bool { return db.rows("old") == 40 })
	if err := end(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	s := j.Status()
	if last := s.Tables[0].Last; s.Sweeping || last.Deleted != 10 || !last.Stopped || last.Err != nil ||
		s.Tables[0].Failures != 0 {
		t.Errorf("%+v", s)
	}
	if n := db.rows("old"); n != 40 {
		t.Errorf("%d rows are left", n)
	}
}

// A table that a migration holds is not waited for: behind the janitor, consumers would wait as well.
func TestSweepDoesNotQueueForTheTable(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 5, 9*day)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "lock table processed_event in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = db.newJanitor(nil).Sweep(t.Context())
	if sqlstate.Of(err) != "55P03" || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// Behind a pooler in transaction mode, in which no session is anybody's own, the lock is not left behind.
func TestSweepBehindAPooler(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.fill("old", 100, 9*day)
	behind := func(mode pgx.QueryExecMode) *janitor.Janitor {
		pool := viaPgx(mode).open(t, db.behind(serverstest.PoolerURL(t)))
		t.Cleanup(func() { _ = pool.Close() })
		return newJanitor(t, pool, schema.Postgres, func(cfg *janitor.Config) {
			cfg.Tables[0].Schema, cfg.Batch = value[string](db, "select current_schema()"), 10
		})
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		j := behind(mode)
		var deleted int64
		for range 3 {
			deleted += sweep(t, j).Deleted
		}
		if deleted != 100 || db.rows("old") != 0 {
			t.Errorf("%v: %d rows deleted, %d left", mode, deleted, db.rows("old"))
		}
		if n := value[int](db, `select count(*) from pg_locks where locktype = 'advisory' and objid = hashtext('processed_event'::regclass::oid::text)::bigint & 4294967295`); n != 0 {
			t.Errorf("%v: %d locks were left behind", mode, n)
		}
		db.fill("old", 100, 9*day)
	}
}

// A table whose column has the times of expiry: Keep is how long rows stay after those.
func TestSweepExpiredKeys(t *testing.T) {
	t.Parallel()
	db := open(t)
	for key, expires := range map[string]string{"expired": "now() - interval '4 hours'",
		"in the margin": "now() - interval '2 hours'", "valid": "now() + interval '1 day'"} {
		db.run(`insert into idempotency_key (scope, key, fingerprint, status_code, created_at, expires_at)
			select '', $1 || g, '\x00', 200, now() - interval '9 days', `+expires+` from generate_series(1, 10) g`, key)
	}
	j := db.newJanitor(func(cfg *janitor.Config) {
		cfg.Tables = []janitor.Table{{Name: "idempotency_key", Column: "expires_at", Keep: time.Hour}}
	})
	if r := sweep(t, j); r.Deleted != 10 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if left := value[int](db, "select count(*) from idempotency_key where key not like 'expired%'"); left != 20 {
		t.Errorf("%d of the others are left, want 20", left)
	}
}
