package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// ownTables are tables that people have, with rows in them, and what is wrong with their keys.
var ownTables = map[string]string{
	"key of the id":         "create table processed_event (event_id text collate \"C\" primary key, consumer_id text collate \"C\" not null default 'c')",
	"no consumer":           "create table processed_event (event_id text collate \"C\" primary key)",
	"number beside":         "create table processed_event (id serial primary key, event_id text collate \"C\" not null, consumer_id text collate \"C\" not null default 'c', constraint narrow unique (event_id))",
	"deferrable":            "create table processed_event (event_id text collate \"C\", consumer_id text collate \"C\" default 'c', primary key (event_id, consumer_id) deferrable)",
	"deferrable and narrow": "create table processed_event (event_id text collate \"C\" unique, consumer_id text collate \"C\" default 'c', primary key (event_id, consumer_id) deferrable)",
	"two narrow ones":       "create table processed_event (event_id text collate \"C\" unique, consumer_id text collate \"C\" default 'c'); create unique index narrow on processed_event (lower(event_id), consumer_id)",
	"folding index":         "create collation folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create table processed_event (event_id text collate \"C\" not null, consumer_id text collate \"C\" not null default 'c'); create unique index on processed_event (event_id collate folding, consumer_id)",
	"partial":               "create table processed_event (event_id text collate \"C\" not null, consumer_id text collate \"C\" not null default 'c'); create unique index on processed_event (event_id) where consumer_id = 'c'",
	"varchar":               "create table processed_event (event_id varchar(36) primary key, consumer_id varchar(8) not null default 'c')",
	"twice":                 "create table processed_event (event_id text collate \"C\", consumer_id text collate \"C\" default 'c', primary key (event_id, consumer_id), unique (consumer_id, event_id))",
	"another must":          "create table processed_event (tenant text not null default 't', event_id text collate \"C\" not null unique, consumer_id text collate \"C\" not null default 'c', primary key (tenant, event_id))",
}

// What Check says to run is safe, statement by statement: whichever of them fails, the table has the unique index that
// its statements need, or all those that it had before. That holds for tables of people's own, and for each harm of the
// other tests.
func TestRemediesAreSafeWhicheverFails(t *testing.T) {
	t.Parallel()
	type table struct {
		component schema.Component
		create    string
	}
	tables := map[string]table{}
	for name, create := range ownTables {
		tables[name] = table{schema.Dedup, create + "; insert into processed_event (event_id) values ('e1'), ('e2')"}
	}
	for name, c := range harms {
		tables["harm, "+name] = table{schema.Dedup, schema.Postgres.SQL(nil, schema.Dedup) + c.harm}
	}
	for name, c := range harmsToOthers {
		tables["harm, "+name] = table{c.component, schema.Postgres.SQL(nil, c.component) + c.harm.harm}
	}
	for name, c := range tables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := serverstest.Pool(t)
			run := execOn(pool)
			for failing := 0; ; failing++ {
				if err := run(t.Context(), emptySQL+c.create); err != nil {
					t.Fatal(err)
				}
				before := uniqueIndexes(t, pool)
				statements := remedies(checkPostgres(t, pool, nil, c.component))
				if failing < len(statements) {
					statements[failing] = "select 1/0"
				}
				for _, statement := range statements {
					_ = run(t.Context(), statement) // as psql does, which goes on behind an error
				}
				left := uniqueIndexes(t, pool)
				for table, had := range before {
					kept := !slices.ContainsFunc(had, func(i string) bool { return !slices.Contains(left[table], i) })
					if key := keyOf[table]; !kept && (key == "" || !takesConflicts(t, pool, table, key)) {
						t.Errorf("without statement %d of %q: the unique indexes of %s are %q, were %q", failing, statements, table,
							left[table], had)
					}
				}
				if failing < len(statements) {
					continue
				}
				for _, f := range checkPostgres(t, pool, nil, c.component) {
					if f.Level == schema.LevelError && f.Run != "" && name != "no consumer" { // whose rows need values first
						t.Errorf("after all of %q: %v", statements, f)
					}
				}
				return
			}
		})
	}
}

// emptySQL drops all that a test has made in its schema.
const emptySQL = `do $$ declare what text; begin
	for what in select format('drop table if exists %I cascade', c.relname) from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') loop execute what; end loop;
	for what in select format('drop sequence if exists %I cascade', c.relname) from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind = 'S' loop execute what; end loop;
	for what in select format('drop collation if exists %I', collname) from pg_collation where collnamespace = current_schema()::regnamespace loop execute what; end loop;
	for what in select format('drop domain if exists %I', typname) from pg_type where typnamespace = current_schema()::regnamespace and typtype = 'd' loop execute what; end loop;
	for what in select format('drop function if exists %I', proname) from pg_proc where pronamespace = current_schema()::regnamespace loop execute what; end loop;
end $$;
`

// keyOf has the key for which the statements of a table say ON CONFLICT.
var keyOf = map[string]string{"processed_event": "event_id, consumer_id", "started_message": "event_id, consumer_id",
	"idempotency_key": "scope, key"}

// takesConflicts reports whether the table has the index that ON CONFLICT needs.
func takesConflicts(t *testing.T, pool *pgxpool.Pool, table, key string) bool {
	t.Helper()
	_, err := pool.Exec(t.Context(), "explain insert into "+table+" ("+key+") values ('x', 'y') on conflict ("+key+
		") do nothing")
	return err == nil
}

// remedies are the statements to run, each once. But for a whole file, none spans lines, so that they can be run line
// by line.
func remedies(found []schema.Finding) (statements []string) {
	for _, f := range found {
		if strings.HasPrefix(f.Run, "\n") {
			statements = append(statements, f.Run)
			continue
		}
		for line := range strings.SplitSeq(strings.TrimSpace(f.Run), "\n") {
			if line != "" && !slices.Contains(statements, line) {
				statements = append(statements, line)
			}
		}
	}
	return statements
}

// uniqueIndexes are those of each table of the schema.
func uniqueIndexes(t *testing.T, pool *pgxpool.Pool) map[string][]string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `select indrelid::regclass::text, indexrelid::regclass::text from pg_index join pg_class c on c.oid = indrelid
		where relnamespace = current_schema()::regnamespace and indisunique and indisvalid order by 1, 2`)
	list := map[string][]string{}
	var table, index string
	if _, err := pgx.ForEachRow(rows, []any{&table, &index}, func() error {
		list[table] = append(list[table], index)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// A table that was renamed keeps the names of its indexes, which the new one needs: they are said, and renamed.
func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	for _, text := range []string{schema.Postgres.SQL(nil, schema.Dedup), "alter table processed_event rename to seen"} {
		if err := execOn(pool)(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	found := checkPostgres(t, pool, nil, schema.Dedup)
	if len(found) != 3 || found[0].About != "name processed_event_pkey" || found[1].About != "name processed_event_time" ||
		found[2].About != "table" ||
		!strings.Contains(found[0].Says, "is that of an index of seen") {
		t.Fatalf("%q", found)
	}
	if err := execOn(pool)(t.Context(), found[2].Run); err != nil {
		t.Fatal(err)
	}
	if found := checkPostgres(t, pool, nil, schema.Dedup); len(found) != 0 {
		t.Errorf("after the remedy: %q", found)
	}
	// the index alone: "if not exists" would find the other one's, and create none
	if err := execOn(pool)(t.Context(),
		"drop index processed_event_time; create index processed_event_time on seen (processed_at)"); err != nil {
		t.Fatal(err)
	}
	found = checkPostgres(t, pool, nil, schema.Dedup)
	if len(found) != 1 || found[0].About != "index" {
		t.Fatalf("%q", found)
	}
	if err := execOn(pool)(t.Context(), strings.ReplaceAll(found[0].Run, "old_processed_event_time",
		"older")); err != nil {
		t.Fatal(err)
	}
	if found := checkPostgres(t, pool, nil, schema.Dedup); len(found) != 0 {
		t.Errorf("after the remedy: %q", found)
	}
}
