package schema_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// harmsToOthers are those to the tables of the other components.
var harmsToOthers = map[string]struct {
	component schema.Component
	harm
}{
	"no index of what is pending": {schema.Outbox, harm{"drop index outbox_event_pending", schema.LevelError, "index",
		"no index on (bucket, id) where status = 'PENDING'"}},
	"no index of what is blocked": {schema.Outbox, harm{"drop index outbox_event_blocked", schema.LevelError, "index",
		"no index on (bucket, id) where status = 'BLOCKED'"}},
	"no index of what is claimed": {schema.Outbox, harm{"drop index outbox_event_claimed", schema.LevelError, "index",
		"no index on (bucket, id) where status = 'PUBLISHING'"}},
	"an index of all instead": {schema.Outbox,
		harm{"drop index outbox_event_pending; create index on outbox_event (bucket, id)", schema.LevelError, "index",
			"where status = 'PENDING'"}},
	"no index of what is sent": {schema.Outbox, harm{"drop index outbox_event_published", schema.LevelWarning,
		"index", "no index on (published_at)"}},
	"no index of what is discarded": {schema.Outbox, harm{"drop index outbox_event_dead", schema.LevelWarning, "index",
		"no index on (id) where status = 'DEAD'"}},
	"no index of the groups": {schema.DeadLetter, harm{"drop index dead_message_group", schema.LevelWarning,
		"index", "no index on (consumer_id, kind, error_type, id)"}},
	"no index of the events": {schema.DeadLetter, harm{"drop index dead_message_event", schema.LevelWarning,
		"index", "no index on (event_id, id)"}},
	"no index of the keys": {schema.DeadLetter, harm{"drop index dead_message_key", schema.LevelWarning,
		"index", "no index on (substr(key, 1, 512), id) where key is not null"}},
	"no index of the times": {schema.DeadLetter, harm{"drop index dead_message_died", schema.LevelWarning,
		"index", "no index on (died_at, id)"}},
	"actions without a number": {schema.Console, harm{"alter table console_action alter id drop identity",
		schema.LevelError, "column id", "einmal gives it none"}},
	"a sequence with a cache": {schema.Outbox, harm{"alter table outbox_event alter id set cache 20",
		schema.LevelError, "sequence", "draws 20 numbers"}},
	"a serial with a cache": {schema.Outbox,
		harm{"alter table outbox_event alter id drop identity; create sequence s cache 5; alter table outbox_event alter id set default nextval('s')", schema.LevelError, "sequence", "draws 5 numbers"}},
	"a sequence that begins again": {schema.Outbox, harm{"alter table outbox_event alter id set cycle", schema.LevelError,
		"sequence", "begins again"}},
	"a sequence that counts down": {schema.Outbox,
		harm{"alter table outbox_event alter id set maxvalue 9 set minvalue -9 set increment -1", schema.LevelError,
			"sequence", "counts down"}},
	"no number": {schema.Outbox, harm{"alter table outbox_event alter id drop identity",
		schema.LevelError, "column id", "einmal gives it none"}},
	"another first state": {schema.Outbox, harm{"alter table outbox_event alter status set default 'DEAD'",
		schema.LevelError, "column status", "'PENDING' in the files"}},
	"no first state": {schema.Outbox, harm{"alter table outbox_event alter status drop default",
		schema.LevelError, "column status", "einmal gives it none"}},
	"a bucket of one's own": {schema.Outbox,
		harm{"alter table outbox_event alter bucket drop expression, alter bucket set default 0", schema.LevelError,
			"column bucket", "not generated"}},
	"an unlogged outbox": {schema.Outbox, harm{"alter table outbox_event set unlogged", schema.LevelError,
		"table", "is unlogged"}},
	"a short topic": {schema.Outbox,
		harm{"alter table outbox_event drop bucket; alter table outbox_event alter topic type varchar(200)",
			schema.LevelError, "column bucket", "missing"}},
	"a trigger of the outbox": {schema.Outbox,
		harm{"create function quiet() returns trigger language plpgsql as 'begin return null; end'; create trigger quiet before update on outbox_event for each row execute function quiet()", schema.LevelWarning, "trigger", "runs before"}},
	"no lease's epoch": {schema.Outbox, harm{"alter table outbox_lease alter epoch drop default",
		schema.LevelError, "column epoch", "einmal gives it none"}},
	"keys that fold": {schema.Idempotency,
		harm{"select pg_advisory_xact_lock(hashtext('citext')); create extension if not exists citext with schema public; alter table idempotency_key alter key type public.citext", schema.LevelError, "column key", "may take different ids"}},
	"short keys": {schema.Idempotency, harm{"alter table idempotency_key alter key type varchar(36)",
		schema.LevelError, "column key", "two ids become one"}},
	"unlogged answers": {schema.Idempotency, harm{"alter table idempotency_key set unlogged",
		schema.LevelError, "table", "is unlogged"}},
	"no index of the expiry": {schema.Idempotency, harm{"drop index idempotency_key_expiry", schema.LevelWarning,
		"index", "no index on (expires_at)"}},
	"short errors": {schema.DeadLetter, harm{"alter table dead_message alter error type varchar(100)",
		schema.LevelError, "column error", "longer values are refused"}},
	"dead letters without a time": {schema.DeadLetter, harm{"alter table dead_message alter died_at drop default",
		schema.LevelError, "column died_at", "einmal gives it none"}},
	"dead letters without a number": {schema.DeadLetter, harm{"alter table dead_message alter id drop identity",
		schema.LevelError, "column id", "einmal gives it none"}},
	"redrives that are null": {schema.DeadLetter,
		harm{"alter table dead_message alter redrives drop default, alter redrives drop not null", schema.LevelError,
			"column redrives", "stays null"}},
	"unlogged dead letters": {schema.DeadLetter, harm{"alter table dead_message set unlogged", schema.LevelError,
		"table", "is unlogged"}},
	"starts that are null": {schema.CrashLoop,
		harm{"alter table started_message alter starts drop default, alter starts drop not null", schema.LevelError,
			"column starts", "stays null"}},
	"a rule of starts": {schema.CrashLoop,
		harm{"create rule quiet as on insert to started_message do instead nothing", schema.LevelError, "rule", "rewrites"}},
}

// Each harm to another table is found, as what it is, and what it says to run puts it right.
func TestCheckOtherTables(t *testing.T) {
	t.Parallel()
	for name, c := range harmsToOthers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := serverstest.Pool(t)
			run := func(sql string) {
				if err := execOn(pool)(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			run(schema.Postgres.SQL(nil, c.component))
			run(c.harm.harm)
			found := checkPostgres(t, pool, nil, c.component)
			i := slices.IndexFunc(found, func(f schema.Finding) bool {
				return f.Level == c.level && f.About == c.about && strings.Contains(f.Says, c.says)
			})
			if i < 0 || len(found) > 1 && c.harm.harm[:len("alter table outbox_event drop")] != "alter table outbox_event drop" {
				t.Fatalf("%q, want one %s about %s that says %q", found, c.level, c.about, c.says)
			}
			if found[i].Run == "" {
				return
			}
			run(found[i].Run)
			if again := checkPostgres(t, pool, nil, c.component); slices.ContainsFunc(again,
				func(f schema.Finding) bool { return f.Says == found[i].Says }) {
				t.Errorf("after the remedy: %q", again)
			}
		})
	}
}

// A crash empties an unlogged partition, whatever the table is.
func TestCheckUnloggedPartition(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	for _, text := range []string{
		`create table processed_event (event_id text collate "C", consumer_id text collate "C", processed_at timestamptz not null default clock_timestamp(),
			primary key (event_id, consumer_id)) partition by hash (event_id)`,
		"create index on processed_event (processed_at)",
		"create table part0 partition of processed_event for values with (modulus 2, remainder 0)",
		"create unlogged table part1 partition of processed_event for values with (modulus 2, remainder 1)",
	} {
		if err := execOn(pool)(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	found := slices.DeleteFunc(checkPostgres(t, pool, nil, schema.Dedup),
		func(f schema.Finding) bool { return strings.HasPrefix(f.About, "option ") })
	if len(found) != 1 || found[0].Level != schema.LevelError || !strings.Contains(found[0].Says, "part1 is unlogged") {
		t.Fatalf("%q", found)
	}
	if err := execOn(pool)(t.Context(), found[0].Run); err != nil {
		t.Fatal(err)
	}
	if found := checkPostgres(t, pool, nil, schema.Dedup); slices.ContainsFunc(found,
		func(f schema.Finding) bool { return f.Level == schema.LevelError }) {
		t.Errorf("after the remedy: %q", found)
	}
}

// SET ROLE does not bring the settings of a role, nor does it bring those of the user who set it: they are what a login
// would get.
func TestCheckSettingsOfARole(t *testing.T) {
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
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	exec := func(sql string) {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var in, database string
	if err := conn.QueryRow(t.Context(), "select current_schema(), quote_ident(current_database())").Scan(&in,
		&database); err != nil {
		t.Fatal(err)
	}
	exec("create role " + role + "; grant usage on schema " + in + " to " + role +
		"; grant select, insert, update, delete on processed_event to " + role)
	defer func() { exec("reset role; drop owned by " + role + "; drop role " + role) }()
	ask := func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}
	for _, c := range []struct{ set, want string }{
		{"", ""},
		{"alter role " + role + " set synchronous_commit = off", "server synchronous_commit"},
		{"alter role " + role + " in database " + database + " set synchronous_commit = on", ""}, // the nearest one holds
		{"alter role " + role + " set default_transaction_read_only = on", "server read_only"},
		{"alter role " + role + " reset all; alter role " + role + " in database " + database +
			" set synchronous_commit = off", "server synchronous_commit"},
		{"alter role " + role + " in database " + database + " reset all", ""},
		{"set synchronous_commit = off", "server synchronous_commit"}, // of the session: nobody knows of which user it is
		{"reset synchronous_commit", ""},
	} {
		if c.set != "" {
			exec(c.set)
		}
		exec("set role " + role)
		found, err := schema.Postgres.Check(t.Context(), ask, nil, schema.Dedup)
		if err != nil {
			t.Fatal(err)
		}
		exec("reset role")
		var got []string
		for _, f := range found {
			if f.About != "server fsync" {
				got = append(got, f.About)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("after %q: %q, want %q", c.set, got, c.want)
		}
	}
}

// Row-level security decides for the role that it applies to, and not for the owner.
func TestCheckRowSecurity(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	exec := func(sql string) {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var in string
	if err := conn.QueryRow(t.Context(), "select current_schema()").Scan(&in); err != nil {
		t.Fatal(err)
	}
	exec(schema.Postgres.SQL(nil, schema.Dedup))
	exec("create role " + role + "; grant usage on schema " + in + " to " + role +
		"; grant select, insert, update, delete on processed_event to " + role)
	defer func() { exec("reset role; drop owned by " + role + "; drop role " + role) }()
	exec("alter table processed_event enable row level security; create policy own on processed_event using (consumer_id = 'billing')")
	for _, want := range []string{"", "row security"} {
		found, err := schema.Postgres.Check(t.Context(), func(ctx context.Context, sql string, args ...any) (text string,
			err error) {
			err = conn.QueryRow(ctx, sql, args...).Scan(&text)
			return text, err
		}, nil, schema.Dedup)
		found = slices.DeleteFunc(found, func(f schema.Finding) bool { return f.About == "server fsync" })
		if err != nil || want == "" && len(found) > 0 || want != "" && (len(found) != 1 || found[0].About != want ||
			found[0].Level != schema.LevelWarning) {
			t.Errorf("%q, %v, want %q", found, err, want)
		}
		exec("set role " + role)
	}
}
