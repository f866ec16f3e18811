package deadtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// Postgres fills in what looks into a fresh database, and returns its URL.
func Postgres[Tx any](t testing.TB, h *Harness[Tx]) (url string) {
	t.Helper()
	url = serverstest.DatabaseURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h.Run = func(text string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatalf("%.80s: %v", text, err)
		}
	}
	h.Count = func(query string) int {
		t.Helper()
		rows, _ := pool.Query(t.Context(), query)
		n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		if err != nil {
			t.Fatalf("%.80s: %v", query, err)
		}
		return n
	}
	h.Locks = true
	h.Backdate = func(id int64, to time.Time) {
		h.Run(fmt.Sprintf("update dead_message set died_at = '%s' where id = %d", to.Format(time.RFC3339), id))
	}
	h.Run(schema.Postgres.SQL(nil))
	h.Run("create table effect (name text not null)")
	return url
}
