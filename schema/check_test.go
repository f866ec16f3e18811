package schema_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func askOn(pool *pgxpool.Pool) schema.Query {
	return func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = pool.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}
}

func checkPostgres(t *testing.T, pool *pgxpool.Pool, cfg *schema.Config,
	components ...schema.Component) []schema.Finding {
	t.Helper()
	found, err := schema.Postgres.Check(t.Context(), askOn(pool), cfg, components...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(f schema.Finding) bool { return f.About == "server fsync" }) // as the test's server is
}

// What the files create is what Check wants, wherever it stands: each column, key, index and option is read from the
// files.
func TestCheckAfterApply(t *testing.T) {
	t.Parallel()
	pool := withoutSearchPath(t)
	elsewhere := &schema.Config{Schema: uniqueSchema(t, pool, `"Else"where`),
		Tables: map[string]string{"processed_event": `seen "by" us`}}
	if err := schema.Postgres.Apply(t.Context(), execOn(pool), elsewhere); err != nil {
		t.Fatal(err)
	}
	if found := checkPostgres(t, pool, elsewhere); len(found) > 0 {
		t.Errorf("%q", found)
	}
	plain := serverstest.Pool(t)
	if err := schema.Postgres.Apply(t.Context(), execOn(plain), nil); err != nil {
		t.Fatal(err)
	}
	if found := checkPostgres(t, plain, nil); len(found) > 0 {
		t.Errorf("%q", found)
	}
	db := sqlite(t)
	for _, cfg := range []*schema.Config{nil, {Tables: elsewhere.Tables}} {
		if _, err := db.ExecContext(t.Context(), schema.SQLite.SQL(cfg)); err != nil {
			t.Fatal(err)
		}
		if found := checkSQLite(t, db, cfg); len(found) > 0 {
			t.Errorf("%q", found)
		}
	}
}

const dropKey = "alter table processed_event drop constraint processed_event_pkey; "

// harm is something that is wrong with a table of a component, and what Check says of it.
type harm struct {
	harm  string
	level schema.Level
	about string
	says  string
}

// harms are those to the table of records.
var harms = map[string]harm{
	"no table": {"drop table processed_event", schema.LevelError, "table", "does not exist"},
	"unlogged": {"alter table processed_event set unlogged", schema.LevelError, "table", "is unlogged"},
	"no counter": {"alter table processed_event drop duplicates", schema.LevelError, "column duplicates",
		"is missing"},
	"no key": {dropKey, schema.LevelError, "index",
		"no unique index on exactly (event_id, consumer_id)"},
	"deferrable beside": {"alter table processed_event add unique (event_id, consumer_id) deferrable",
		schema.LevelError, "index", "is deferrable"},
	"char(n)": {"alter table processed_event alter event_id type char(40)", schema.LevelError,
		"column event_id", "may take different ids"},
	"citext's kind": {"create collation folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false); alter table processed_event alter consumer_id type text collate folding", schema.LevelError, "column consumer_id", "may take different ids"},
	"index of one": {"create unique index narrow on processed_event (event_id)", schema.LevelError, "index",
		"narrow takes different events"},
	"constraint of one": {"alter table processed_event add constraint narrow unique (consumer_id)",
		schema.LevelError, "index", "narrow takes different events"},
	"index of an expression": {"create unique index narrow on processed_event (lower(event_id), consumer_id)",
		schema.LevelError, "index", "narrow takes different events"},
	"index that folds": {"create collation folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create unique index narrow on processed_event (event_id collate folding, consumer_id)", schema.LevelError, "index", "not compare byte by byte"},
	"column that must be": {"alter table processed_event add tenant text not null", schema.LevelError,
		"column tenant", "must have a value"},
	"index of something else": {"create unique index other on processed_event (processed_at)", schema.LevelWarning,
		"index", "does not look at"},
	"index twice": {"create unique index zzz on processed_event (consumer_id, event_id)", schema.LevelWarning,
		"index", "there twice"},
	"identity": {"alter table processed_event add id bigint generated always as identity",
		schema.LevelWarning, "column id", "sequence"},
	"serial": {"alter table processed_event add id serial unique", schema.LevelWarning, "column id",
		"sequence"},
	"no index of the time": {"drop index processed_event_time", schema.LevelWarning, "index",
		"no index on (processed_at)"},
	"time without a zone": {"alter table processed_event alter processed_at type timestamp", schema.LevelWarning,
		"column processed_at", "timestamp without time zone"},
	"no fillfactor": {"alter table processed_event reset (fillfactor)", schema.LevelWarning,
		"option fillfactor", "no fillfactor"},
	"autovacuum as everywhere": {"alter table processed_event reset (autovacuum_vacuum_insert_scale_factor)",
		schema.LevelWarning, "option autovacuum_vacuum_insert_scale_factor", "no autovacuum_vacuum_insert_scale_factor"},
	"varchar(n)": {"alter table processed_event alter event_id type varchar(36)", schema.LevelError,
		"column event_id", "two ids become one"},
	"varchar(n) of consumers": {"alter table processed_event alter consumer_id type varchar(8)", schema.LevelError,
		"column consumer_id", "longer values are refused"},
	"varchar(n), a little": {"alter table processed_event alter event_id type varchar(1023)", schema.LevelError,
		"column event_id", "two ids become one"},
	"domain": {"create domain id as char(40); alter table processed_event alter event_id type id",
		schema.LevelError, "column event_id", "may take different ids"},
	"no default of the time": {"alter table processed_event alter processed_at drop default", schema.LevelError,
		"column processed_at", "einmal gives it none"},
	"no time": {"alter table processed_event alter processed_at drop default, alter processed_at drop not null", schema.LevelWarning, "column processed_at", "never deleted"},
	"time of another zone": {"alter table processed_event alter processed_at set default (now() at time zone 'utc')",
		schema.LevelWarning, "column processed_at", "may not be the time"},
	"time that stands still": {"alter table processed_event alter processed_at set default '2020-01-01 00:00:00Z'",
		schema.LevelWarning, "column processed_at", "may not be the time"},
	"no count": {"alter table processed_event alter duplicates drop default, alter duplicates drop not null", schema.LevelError, "column duplicates", "stays null"},
	"count from 1": {"alter table processed_event alter duplicates set default 1", schema.LevelError,
		"column duplicates", "has the default 1, and 0 in the files"},
	"rule":          {"create rule quiet as on insert to processed_event where new.consumer_id = 'x' do instead nothing", schema.LevelError, "rule", "rule quiet rewrites"},
	"trigger":       {"create function quiet() returns trigger language plpgsql as 'begin return null; end'; create trigger quiet before insert on processed_event for each row when (new.consumer_id = 'x') execute function quiet()", schema.LevelWarning, "trigger", "trigger quiet runs before"},
	"invalid index": {"create unique index broken on processed_event (event_id, consumer_id); update pg_index set indisvalid = false where indexrelid = 'broken'::regclass", schema.LevelWarning, "index", "broken is invalid"},
	"autovacuum off": {"alter table processed_event set (autovacuum_enabled = off)", schema.LevelWarning,
		"option autovacuum_enabled", "autovacuum is off"},
}

// Each harm is found, as what it is, and nothing else is; what it says to run puts it right.
func TestCheckPostgres(t *testing.T) {
	t.Parallel()
	for name, c := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := serverstest.Pool(t)
			run := func(sql string) {
				if err := execOn(pool)(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			run(schema.Postgres.SQL(nil, schema.Dedup))
			run(c.harm)
			found := checkPostgres(t, pool, nil, schema.Dedup)
			if len(found) != 1 || found[0].Level != c.level || found[0].About != c.about ||
				!strings.Contains(found[0].Says, c.says) {
				t.Fatalf("%q, want one %s about %s that says %q", found, c.level, c.about, c.says)
			}
			if found[0].Run == "" {
				return
			}
			run(found[0].Run)
			if found := checkPostgres(t, pool, nil, schema.Dedup); len(found) != 0 {
				t.Errorf("after the remedy: %q", found)
			}
		})
	}
}

// Partitions have the storage parameters, and the record counts nothing in a partitioned table.
func TestCheckPartitions(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	for _, sql := range []string{
		`create table processed_event (event_id uuid, consumer_id text collate "C", processed_at timestamptz not null default clock_timestamp(),
			primary key (event_id, consumer_id)) partition by hash (event_id)`,
		"create index on processed_event (processed_at)",
		`create table part0 partition of processed_event for values with (modulus 2, remainder 0) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02,
			autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)`,
		`create table part1 partition of processed_event for values with (modulus 2, remainder 1) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02,
			autovacuum_vacuum_insert_scale_factor = 0.05)`,
	} {
		if err := execOn(pool)(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	found := checkPostgres(t, pool, nil, schema.Dedup)
	if len(found) != 1 || found[0].Run != "alter table part1 set (autovacuum_analyze_scale_factor = 0.05);" {
		t.Errorf("%q", found)
	}
}

func TestCheckPrivileges(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if err := execOn(pool)(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string) {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("create role " + role)
	defer func() { exec("reset role; drop owned by " + role + "; drop role " + role) }()
	var in string
	if err := conn.QueryRow(t.Context(), "select current_schema()").Scan(&in); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}
	named := &schema.Config{Schema: in}
	for _, c := range []struct {
		cfg  *schema.Config
		want string
	}{
		{named, "usage error"}, {nil, "select error, insert error, update error, delete warning"}, {nil, ""}, {named, ""},
		{nil, "usage error"}, {nil, ""},
	} {
		if c.want == "usage error" {
			exec("revoke usage on schema " + in + " from " + role)
		}
		exec("set role " + role)
		found, err := schema.Postgres.Check(t.Context(), ask, c.cfg, schema.Dedup)
		if err != nil {
			t.Fatal(err)
		}
		exec("reset role")
		var got []string
		for _, f := range found {
			if privilege, ok := strings.CutPrefix(f.About, "privilege "); ok {
				got = append(got, privilege+" "+string(f.Level))
				exec(f.Run)
			}
		}
		if strings.Join(got, ", ") != c.want || len(got) != len(found)-serverFindings(found) {
			t.Errorf("%q, want the privileges %q", found, c.want)
		}
	}
}

// serverFindings counts what is about the server: the tests' one has fsync off.
func serverFindings(found []schema.Finding) (n int) {
	for _, f := range found {
		if f.Table == "" {
			n++
		}
	}
	return n
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if err := execOn(pool)(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, c := range []struct {
		set, about string
		level      schema.Level
	}{
		{"set synchronous_commit = off", "server synchronous_commit", schema.LevelWarning},
		{"set transaction_read_only = on", "server read_only", schema.LevelError},
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), c.set); err != nil {
			t.Fatal(err)
		}
		found, err := schema.Postgres.Check(t.Context(), func(ctx context.Context, sql string, args ...any) (text string,
			err error) {
			err = tx.QueryRow(ctx, sql, args...).Scan(&text)
			return text, err
		}, nil, schema.Dedup)
		if err != nil || !slices.ContainsFunc(found, func(f schema.Finding) bool {
			return f.About == c.about &&
				f.Level == c.level
		}) {
			t.Errorf("%s: %q, %v", c.set, found, err)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func sqlite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func checkSQLite(t *testing.T, db *sql.DB, cfg *schema.Config) []schema.Finding {
	t.Helper()
	found, err := schema.SQLite.Check(t.Context(), func(ctx context.Context, sql string, args ...any) (text string,
		err error) {
		err = db.QueryRowContext(ctx, sql, args...).Scan(&text)
		return text, err
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The harms that SQLite has of its own; sqlstore's tests have the rest.
func TestCheckSQLite(t *testing.T) {
	t.Parallel()
	const columns = "(event_id text, consumer_id text, processed_at text default (datetime('now')), duplicates integer not null default 0"
	for name, c := range map[string]struct {
		instead string
		level   schema.Level
		says    string
	}{
		"no index of the time": {"create table processed_event " + columns + ", primary key (event_id, consumer_id))",
			schema.LevelWarning, "no index on (processed_at)"},
		"a number of its own": {"create table processed_event " + columns +
			", id integer primary key, unique (event_id, consumer_id)); create index t on processed_event (processed_at)", "",
			""},
		"must have a value": {"create table processed_event " + columns +
			", tenant text not null, primary key (event_id, consumer_id)); create index t on processed_event (processed_at)",
			schema.LevelError, "column tenant must"},
		"times in numbers":   {"create table processed_event (event_id text, consumer_id text, processed_at text default (unixepoch()), duplicates integer not null default 0, primary key (event_id, consumer_id)); create index t on processed_event (processed_at)", schema.LevelWarning, "may not be the time in UTC"},
		"times of a zone":    {"create table processed_event (event_id text, consumer_id text, processed_at text default (datetime('now', 'localtime')), duplicates integer not null default 0, primary key (event_id, consumer_id)); create index t on processed_event (processed_at)", schema.LevelWarning, "may not be the time in UTC"},
		"no time":            {"create table processed_event (event_id text, consumer_id text, processed_at text, duplicates integer not null default 0, primary key (event_id, consumer_id)); create index t on processed_event (processed_at)", schema.LevelWarning, "never deleted"},
		"a null for a count": {"create table processed_event (event_id text, consumer_id text, processed_at text default current_timestamp, duplicates integer, primary key (event_id, consumer_id)); create index t on processed_event (processed_at)", schema.LevelError, "stays null"},
		"a trigger": {"create table processed_event " + columns +
			", primary key (event_id, consumer_id)); create index t on processed_event (processed_at); create trigger quiet before insert on processed_event when new.consumer_id = 'x' begin select raise(ignore); end", schema.LevelError, "leaves rows out"},
		"a trigger that tells": {"create table processed_event " + columns +
			", primary key (event_id, consumer_id)); create index t on processed_event (processed_at); create trigger loud before insert on processed_event begin select raise(abort, 'no'); end", schema.LevelWarning, "runs before"},
		"an expression": {"create table processed_event " + columns +
			", primary key (event_id, consumer_id)); create index t on processed_event (processed_at); create unique index n on processed_event (lower(event_id), consumer_id)", schema.LevelError, `"n" takes different events`},
	} {
		db := sqlite(t)
		if _, err := db.ExecContext(t.Context(), c.instead); err != nil {
			t.Fatal(err)
		}
		found := checkSQLite(t, db, nil)
		found = slices.DeleteFunc(found, func(f schema.Finding) bool { return f.Component != schema.Dedup })
		if c.says == "" && len(found) != 0 || c.says != "" && (len(found) != 1 || found[0].Level != c.level ||
			!strings.Contains(found[0].Says, c.says)) {
			t.Errorf("%s: %q, want %q", name, found, c.says)
		}
	}
}

// An answer that cannot be had is an error, and no finding.
func TestCheckCannotAsk(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	pool.Close()
	if found, err := schema.Postgres.Check(t.Context(), askOn(pool), nil); err == nil || found != nil {
		t.Errorf("Check() = %q, %v", found, err)
	}
	if _, err := schema.Postgres.Check(t.Context(), askOn(pool), nil, "deduplication"); err == nil ||
		!strings.Contains(err.Error(), "deduplication") {
		t.Errorf("Check() = %v", err)
	}
}
