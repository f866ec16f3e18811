package schema_test

import (
	"context"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// A duplicate costs as little as it can: no number of a sequence, one unique index to look at, and no entry in any
// index for the counter.
func TestDuplicatesAreCheap(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if err := schema.Postgres.Apply(t.Context(), execOn(pool), nil, schema.Dedup); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	const duplicates = 10
	for range 1 + duplicates {
		if _, err := tx.Exec(t.Context(), `insert into processed_event as p (event_id, consumer_id) values ('e', 'c')
			on conflict (event_id, consumer_id) do update set duplicates = p.duplicates + 1`); err != nil {
			t.Fatal(err)
		}
	}
	var hot, sequences, unique int
	if err := tx.QueryRow(t.Context(), `select pg_stat_get_xact_tuples_hot_updated('processed_event'::regclass),
		(select count(*) from pg_class where relkind = 'S' and relnamespace = current_schema()::regnamespace),
		(select count(*) from pg_index where indrelid = 'processed_event'::regclass and indisunique)`).Scan(&hot, &sequences, &unique); err != nil {
		t.Fatal(err)
	}
	if hot != duplicates || sequences != 0 || unique != 1 {
		t.Errorf("%d of %d updates wrote no index, %d sequences, %d unique indexes; want all, none and one", hot, duplicates,
			sequences, unique)
	}
}
