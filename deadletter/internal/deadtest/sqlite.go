package deadtest

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/schema"
)

// SQLite fills in what looks into a fresh database, and returns a pool of connections to it.
func SQLite[Tx any](t testing.TB, h *Harness[Tx]) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h.Run = func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%.80s: %v", text, err)
		}
	}
	h.Count = func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatalf("%.80s: %v", query, err)
		}
		return n
	}
	h.Backdate = func(id int64, to time.Time) {
		h.Run(fmt.Sprintf("update dead_message set died_at = '%s' where id = %d", to.Format("2006-01-02T15:04:05.000Z"), id))
	}
	h.Run(schema.SQLite.SQL(nil))
	h.Run("create table effect (name text not null)")
	return db
}
