package schema_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// Each component creates tables that no other has, by itself, and the same columns under another name.
func TestComponents(t *testing.T) {
	t.Parallel()
	everything := serverstest.Pool(t)
	if err := schema.Postgres.Apply(t.Context(), execOn(everything), nil); err != nil {
		t.Fatal(err)
	}
	owner, other := map[string]schema.Component{}, map[string]string{}
	for table := range columns(t, everything, "current_schema()") {
		other[table] = `the "` + table + `" of others`
	}
	for _, component := range schema.Postgres.Components() {
		pool := serverstest.Pool(t)
		if err := schema.Postgres.Apply(t.Context(), execOn(pool), nil, component); err != nil {
			t.Fatal(err)
		}
		plain := columns(t, pool, "current_schema()")
		if len(plain) == 0 {
			t.Errorf("%s has no tables", component)
		}
		for table := range plain {
			if owner[table] != "" {
				t.Errorf("%s is of %s and of %s", table, owner[table], component)
			}
			owner[table] = component
		}
		checkElsewhere(t, component, plain, other)
	}
}

// checkElsewhere applies a component in a schema and under names of one's own, where all others have other names too.
func checkElsewhere(t *testing.T, component schema.Component, plain map[string]string, other map[string]string) {
	t.Helper()
	pool := withoutSearchPath(t)
	cfg := &schema.Config{Schema: uniqueSchema(t, pool, `"else"where`), Tables: other}
	for range 2 {
		if err := schema.Postgres.Apply(t.Context(), execOn(pool), cfg, component); err != nil {
			t.Fatal(err)
		}
	}
	got := columns(t, pool, "'"+cfg.Schema+"'")
	want := map[string]string{}
	for table, text := range plain {
		want[other[table]] = text
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s under other names has %q, want %q", component, got, want)
	}
}

// columns are the columns of all tables of a schema.
func columns(t *testing.T, pool *pgxpool.Pool, in string) map[string]string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select table_name || '=' || string_agg(column_name || ' ' || data_type, ', ' order by ordinal_position)
		from information_schema.columns where table_schema = `+in+` group by table_name`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{}
	for _, line := range lines {
		table, text, _ := strings.Cut(line, "=")
		tables[table] = text
	}
	return tables
}

// A file belongs to the component that its first line names: no other gets it.
func TestFilesOfAComponent(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		var all []schema.File
		for _, component := range dialect.Components() {
			list := dialect.Files(component)
			for _, file := range list {
				if file.Component != component {
					t.Errorf("%s: %s is of %s", component, file.Name, file.Component)
				}
			}
			all = append(all, list...)
		}
		slices.SortFunc(all, func(a, b schema.File) int { return strings.Compare(a.Name, b.Name) })
		if !slices.Equal(all, dialect.Files()) || !slices.Equal(all, dialect.Files(dialect.Components()...)) {
			t.Errorf("%s: the components have %d files, all are %d", dialect, len(all), len(dialect.Files()))
		}
	}
}

func TestApplyRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	exec := func(context.Context, string) error { return nil }
	for _, c := range []struct {
		cfg       *schema.Config
		component schema.Component
		says      string
	}{
		{nil, "deduplication", `component "deduplication"`},
		{&schema.Config{Tables: map[string]string{"processed_events": "seen"}}, schema.Dedup, `no table "processed_events"`},
	} {
		if err := schema.Postgres.Apply(t.Context(), exec, c.cfg, c.component); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("Apply() = %v, want an error that says %s", err, c.says)
		}
	}
}
