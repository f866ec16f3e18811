package janitor

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// However the planner sees the table, a batch reads the index from where it begins to where it ends: neither the whole
// table, nor a sorted backlog.
func TestABatchReadsTheIndexAlone(t *testing.T) {
	t.Parallel()
	db := stdlib.OpenDBFromPool(serverstest.Pool(t))
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%.80s: %v", text, err)
		}
	}
	run(schema.Postgres.SQL(nil))
	table := &Table{Name: "processed_event", Column: "processed_at", Keep: 24 * time.Hour, place: &place{}}
	for _, state := range []string{
		"select 1", // nothing in it, and no statistics
		"insert into processed_event (event_id, consumer_id, processed_at) select g::text, 'c', now() - interval '9 days' from generate_series(1, 20000) g",
		"analyze processed_event", // all of it is old, which makes a planner read the table
		"insert into processed_event (event_id, consumer_id) select 'y' || g::text, 'c' from generate_series(1, 20000) g; analyze processed_event",
	} {
		run(state)
		tx, typ, locked, err := lockTable(t.Context(), conn, table)
		if err != nil || !locked {
			t.Fatal(locked, err)
		}
		of, err := timeTypeOf(table, typ)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tx.QueryContext(t.Context(), "explain "+table.delete(of), table.age().Microseconds(), "-infinity", 1000)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var plan []string
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		_ = tx.Rollback()
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, "Index Scan using processed_event_time") || !strings.Contains(text, "Tid Scan") ||
			strings.Contains(text, "Seq Scan") || strings.Contains(text, "Sort") {
			t.Errorf("after %.40s:\n%s", state, text)
		}
	}
}
