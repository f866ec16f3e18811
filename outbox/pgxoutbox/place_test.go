package pgxoutbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// The outbox stays the one that it was at the first event, whatever a function leaves or makes in its session; and an
// event that a trigger swallows is an error.
func TestOutboxStays(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Outbox)); err != nil {
		t.Fatal(err)
	}
	writer := pgxoutbox.NewWriter(nil)
	write := func(before string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), before); err != nil {
				return err
			}
			return writer.Write(t.Context(), tx, outbox.Event{Topic: "t"})
		})
	}
	for _, before := range []string{"", "set local search_path to ''",
		"create temporary table outbox_event (like outbox_event including all) on commit drop"} {
		if err := write(before); err != nil {
			t.Errorf("after %q: Write: %v", before, err)
		}
	}
	var n int
	if err := pool.QueryRow(context.WithoutCancel(t.Context()),
		"select count(*) from outbox_event").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d events, %v, want 3", n, err)
	}
	err := write(`create function swallow() returns trigger language plpgsql as 'begin return null; end';
		create trigger swallow before insert on outbox_event for each row execute function swallow()`)
	if !errors.Is(err, outbox.ErrSwallowed) {
		t.Errorf("with a trigger that swallows: Write: %v", err)
	}
}
