package janitor_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// Records of events are kept for 30 days, which is also DedupConfig.Window of the handlers.
func Example() {
	const window = 30 * 24 * time.Hour
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the database is the connection's
	if _, err := db.ExecContext(ctx, schema.SQLite.SQL(nil, schema.Dedup)+`
		insert into processed_event (event_id, consumer_id, processed_at) values ('old', 'billing', '2020-01-01T00:00:00.000Z');
		insert into processed_event (event_id, consumer_id) values ('new', 'billing')`); err != nil {
		panic(err)
	}

	j, err := janitor.New(db, schema.SQLite, janitor.Config{Tables: []janitor.Table{{
		Name: "processed_event", Column: "processed_at", Keep: window, Dedup: []any{janitor.Window(window)},
	}}})
	if err != nil {
		panic(err)
	}
	reports, err := j.Sweep(ctx) // a service calls Run, which sweeps again and again
	if err != nil {
		panic(err)
	}
	fmt.Println("deleted:", reports[0].Deleted)
	// Output: deleted: 1
}
