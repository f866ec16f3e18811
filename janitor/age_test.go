package janitor_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// aging is a table that a janitor sweeps, and how a row whose time is that expression comes into it.
type aging struct {
	table  janitor.Table
	insert string // takes the row's number, and has %s for its time
}

var agings = []aging{
	{
		janitor.Table{Name: "processed_event", Column: "processed_at", Keep: day},
		"insert into processed_event (event_id, consumer_id, processed_at) select '%[2]d', 'c', %[1]s",
	}, {
		janitor.Table{Name: "dead_message", Column: "died_at", Keep: day},
		"insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, died_at) select 'c', '%[2]d', 't', 0, 0, 'k', %[1]s",
	}, {
		janitor.Table{Name: "idempotency_key", Column: "expires_at", Keep: day},
		"insert into idempotency_key (scope, key, fingerprint, status_code, expires_at) select '', '%[2]d', '', 200, %[1]s",
	}, {
		janitor.Table{Name: "outbox_event", Column: "published_at", Keep: day, Where: "status = 'PUBLISHED'"},
		"insert into outbox_event (event_id, topic, status, published_at) select '%[2]d', 't', 'PUBLISHED', %[1]s",
	},
}

var (
	zones  = []string{"GMT", "<-12>12", "<+14>-14", "<+0545>-5:45", "CET-1CEST", "<-1559>15:59", "<+1559>-15:59"} // need no database of zones
	styles = []string{"ISO, MDY", "SQL, DMY", "SQL, MDY", "Postgres, DMY", "German, DMY"}
)

// in opens a database whose sessions have a zone and a DateStyle.
func (db *database) in(t testing.TB, zone, style string) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["timezone"], cfg.RuntimeParams["datestyle"], cfg.RuntimeParams["intervalstyle"] = zone, style,
		"sql_standard"
	cfg.RuntimeParams["synchronous_commit"] = "off"
	return stdlib.OpenDB(*cfg)
}

// Whatever the zones and styles of the sessions that write and delete, and the type of the column, no row is deleted
// that is younger than it is kept. Where its age can be told, what is old goes; where it cannot, the janitor says so.
func TestNoRowIsDeletedEarly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ   string
		of    string        // the type's value of a time with a zone
		apart time.Duration // after which it must be gone; 0: the type is refused
	}{
		{"timestamptz", "%s", time.Minute},
		{"timestamptz(3)", "%s", time.Minute},
		{"instant", "%s", time.Minute},
		{"timestamp", "(%s)::timestamp", 33 * time.Hour},                          // by the session's clock
		{"timestamp", "timezone('UTC', %s)", 33 * time.Hour},                      // as many do
		{"date", "(%s)::date", 0},                                                 // which is up to a day too early
		{"bigint", "extract(epoch from %s)::bigint", 0},                           // seconds
		{"text", "to_char(%s, 'YYYY-MM-DD HH24:MI:SS')", 0},                       // without a zone
		{"text", "to_char(timezone('UTC', %s), 'YYYY-MM-DD\"T\"HH24:MI:SSZ')", 0}, // as SQLite has them
		{"time", "(%s)::time", 0},
	} {
		t.Run(c.typ+" "+c.of, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.run("create domain instant as timestamptz")
			for _, a := range agings {
				db.run(fmt.Sprintf("alter table %[1]s alter %[2]s drop default, alter %[2]s type %[3]s using null", a.table.Name,
					a.table.Column, c.typ))
			}
			checks := 0
			rapid.Check(t, func(rt *rapid.T) {
				if checks++; c.apart == 0 && checks > 10 {
					return // all are refused
				}
				a := rapid.SampledFrom(agings).Draw(rt, "table")
				zone, style := rapid.SampledFrom(zones), rapid.SampledFrom(styles)
				writer := db.in(t, zone.Draw(rt, "writer's zone"), style.Draw(rt, "writer's style"))
				defer writer.Close()
				sweeper := db.in(t, zone.Draw(rt, "sweeper's zone"), style.Draw(rt, "sweeper's style"))
				defer sweeper.Close()
				ages := rapid.SliceOfN(rapid.Int64Range(0, 7*24*60), 1, 5).Draw(rt, "ages in minutes")
				ages = append(ages, 24*60-1, 26*60-1, 7*24*60)
				text := "delete from " + a.table.Name
				for i, age := range ages {
					at := fmt.Sprintf(c.of, fmt.Sprintf("(clock_timestamp() - interval '%d seconds')", age*60))
					text += ";\n" + fmt.Sprintf(a.insert, at, i)
				}
				execute(t, writer, text)
				j := newJanitor(t, sweeper, schema.Postgres, func(cfg *janitor.Config) {
					cfg.Tables, cfg.Batch, cfg.Pause = []janitor.Table{a.table}, 3, time.Microsecond
				})
				reports, err := j.Sweep(t.Context())
				left := map[int]bool{}
				column := map[string]string{"idempotency_key": "key"}[a.table.Name]
				rows, _ := db.Query(t.Context(), "select "+max(column, "event_id")+"::int from "+a.table.Name)
				for _, n := range must(pgx.CollectRows(rows, pgx.RowTo[int]))(t) {
					left[n] = true
				}
				switch {
				case c.apart == 0 && (err == nil || !strings.Contains(err.Error(), "does not tell how old a row is") ||
					len(left) != len(ages)):
					rt.Errorf("%v, %d of %d rows are left: want all of them, and an error", err, len(left), len(ages))
				case c.apart > 0 && err != nil:
					rt.Error(err)
				case c.apart > 0 && reports[0].Deleted != int64(len(ages)-len(left)):
					rt.Errorf("%+v, %d rows are gone", reports, len(ages)-len(left))
				}
				for i, age := range ages {
					old := time.Duration(age) * time.Minute
					if !left[i] && old < day {
						rt.Errorf("a row of %v was deleted", old)
					}
					if left[i] && c.apart > 0 && old > day+janitor.DefaultMargin+c.apart {
						rt.Errorf("a row of %v is left", old)
					}
				}
			})
		})
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// The server's clock decides which rows are old, whatever that of the janitor's process is.
func TestSweepByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 30 * day, "behind": -30 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.fill("old", 10, 2*day)
			db.fill("young", 10, day)
			url, at := db.url, time.Now().Add(off)
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(at))
				pool := cached.open(t, url)
				defer pool.Close()
				if r := sweep(t, newJanitor(t, pool, schema.Postgres, nil)); r.Deleted != 10 {
					t.Errorf("%+v, want the 10 that are old by the server's clock", r)
				}
			})
			if old, young := db.rows("old"), db.rows("young"); old != 0 || young != 10 {
				t.Errorf("%d old rows and %d young ones are left", old, young)
			}
		})
	}
}

// The same as on PostgreSQL, for the texts in which SQLite has times, and for what it takes for a time and is none.
func TestNoRowIsDeletedEarlyInSQLite(t *testing.T) {
	t.Parallel()
	const iso = "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now', '%s')"
	forms := map[string]bool{ // whether they tell an age
		iso:                     true,
		"datetime('now', '%s')": true,
		"strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '%s')": true,
		"strftime('%%Y-%%m-%%dT%%H:%%M', 'now', '%s')":     true,
		"datetime('now', '%s', '+14 hours') || '+14:00'":   true,
		"datetime('now', '%s', '-12 hours') || '-12:00'":   true,
		"date('now', '%s')":                            false,
		"time('now', '%s')":                            false,
		"julianday('now', '%s') || ''":                 false,
		"unixepoch('now', '%s') || ''":                 false,
		"unixepoch('now', '%s') || '000'":              false,
		"replace(datetime('now', '%s'), '-', '/')":     false,
		"strftime('%%d.%%m.%%Y %%H:%%M', 'now', '%s')": false,
		"nullif('%s', '') || ' ago'":                   false,
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for form := range forms {
			if !yield(form) {
				return
			}
		}
	})
	db := openFile(t)
	rapid.Check(t, func(rt *rapid.T) {
		a := rapid.SampledFrom(agings[:3]).Draw(rt, "table")
		type row struct {
			form string
			age  time.Duration
		}
		var all []row
		text := "begin; delete from " + a.table.Name
		for i := range rapid.IntRange(1, 12).Draw(rt, "rows") {
			r := row{rapid.SampledFrom(names).Draw(rt, "form"),
				time.Duration(rapid.Int64Range(0, 4*24*60).Draw(rt, "minutes")) * time.Minute}
			all = append(all, r)
			text += ";\n" + fmt.Sprintf(a.insert, fmt.Sprintf(r.form, fmt.Sprintf("-%d minutes", r.age/time.Minute)), i)
		}
		execute(t, db, text+"; commit")
		j := newJanitor(t, db, schema.SQLite, func(cfg *janitor.Config) {
			cfg.Tables, cfg.Batch, cfg.Pause = []janitor.Table{a.table}, 3, time.Microsecond
		})
		sweep(t, j)
		column := max(map[string]string{"idempotency_key": "key"}[a.table.Name], "event_id")
		for i, r := range all {
			left := count(t, db, fmt.Sprintf("select count(*) from %s where %s = '%d'", a.table.Name, column, i)) == 1
			if !left && (r.age < day || !forms[r.form]) {
				rt.Errorf("a row of %v, as %s, was deleted", r.age, r.form)
			}
			if left && forms[r.form] && r.age > day+janitor.DefaultMargin+24*time.Hour {
				rt.Errorf("a row of %v, as %s, is left", r.age, r.form)
			}
		}
	})
}

// A column that tells no age is refused, with the reason: otherwise all would stay for ever, or go at once, and nobody
// would know.
func TestColumnsThatTellNoAgeInSQLite(t *testing.T) {
	t.Parallel()
	db := openFile(t)
	for i, c := range []struct{ column, value, says string }{
		{"text default (unixepoch())", "", "has the default unixepoch()"},
		{"integer default (unixepoch())", "", "has the default unixepoch()"},
		{"text default (datetime('now', 'localtime'))", "", "localtime"},
		{"text default (date('now'))", "", "has the default date('now')"},
		{"text default (time('now'))", "", "has the default time('now')"},
		{"text default '2020-01-01T00:00:00.000Z'", "", "has the default '2020"},
		{"real default (julianday('now'))", "", "has the default julianday"},
		{"text default (datetime('now', '-1 hour'))", "", "has the default datetime"},
		{"integer", "unixepoch('now', '-9 days')", "has values of type integer"},
		{"real", "julianday('now', '-9 days')", "has values of type real"},
		{"blob", "cast(datetime('now', '-9 days') as blob)", "has values of type blob"},
		{"text default (datetime('now'))", "datetime('now', '-9 days')", ""},
		{"text default (datetime())", "datetime('now', '-9 days')", ""},
		{"datetime default current_timestamp", "datetime('now', '-9 days')", ""},
		{"timestamp default null", "datetime('now', '-9 days')", ""},
		{"text default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))", "datetime('now', '-9 days')", ""},
	} {
		name := fmt.Sprintf("t%d", i)
		execute(t, db, fmt.Sprintf("create table %s (id integer primary key, at %s); create index i%s on %s (at)", name,
			c.column, name, name))
		if c.value != "" {
			execute(t, db, fmt.Sprintf("insert into %s (at) values (%s), (null)", name, c.value))
		}
		j := newJanitor(t, db, schema.SQLite,
			func(cfg *janitor.Config) { cfg.Tables = []janitor.Table{{Name: name, Column: "at", Keep: day}} })
		reports, err := j.Sweep(t.Context())
		if c.says == "" && (err != nil || reports[0].Deleted != 1) || c.says != "" &&
			(err == nil || !strings.Contains(err.Error(), c.says) || reports[0].Deleted != 0) {
			t.Errorf("%s: %v, deleted %d, want %q", c.column, err, reports[0].Deleted, c.says)
		}
	}
}

// A column that is not there is none by which rows are old. In SQLite, a name in quotes would be a text.
func TestNoSuchColumn(t *testing.T) {
	t.Parallel()
	table := []janitor.Table{{Name: "processed_event", Column: "0", Keep: day}}
	file, db := openFile(t), open(t)
	fillFile(t, file, "old", 1, 9*day)
	for d, on := range map[schema.Dialect]*sql.DB{schema.SQLite: file, schema.Postgres: db.via(cached)} {
		_, err := newJanitor(t, on, d, func(cfg *janitor.Config) { cfg.Tables = table }).Sweep(t.Context())
		if err == nil || !strings.Contains(err.Error(), `has no column "0": correct Table.Column`) {
			t.Errorf("%s: %v", d, err)
		}
	}
	if n := count(t, file, "select count(*) from processed_event"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
}
