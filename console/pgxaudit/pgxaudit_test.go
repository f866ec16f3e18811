package pgxaudit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/console/pgxaudit"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// Each action is a row, before it is done and when it has ended.
func TestAudit(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	audit := pgxaudit.New(pool, nil)
	if _, err := audit.Begin(t.Context(), console.Entry{Who: "ann", Action: "pause"}); err == nil ||
		!strings.Contains(err.Error(), "einmal schema print -db postgres console") {
		t.Errorf("without the table: %v", err)
	}
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Console)); err != nil {
		t.Fatal(err)
	}
	id, err := audit.Begin(t.Context(), console.Entry{Who: "ann", Action: "pause", Target: "orders", Reason: "a repair"})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	row := func() string {
		if err := pool.QueryRow(t.Context(),
			"select concat_ws('|', done_by, action, target, reason, changed, error, ended_at is null) from console_action").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := row(); got != "ann|pause|orders|a repair||t" {
		t.Errorf("before: %s", got)
	}
	if err := audit.End(t.Context(), id, 3, ""); err != nil {
		t.Fatal(err)
	}
	if got := row(); got != "ann|pause|orders|a repair|3||f" {
		t.Errorf("after: %s", got)
	}
	if err := audit.End(t.Context(), id+1, 0, ""); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("the end of a row that is not there: %v", err)
	}
}

// What people do by a console is kept in a table of the service's database.
func Example() {
	operators := func(pool *pgxpool.Pool) (*console.Console, error) {
		return console.New(console.Config{Audit: pgxaudit.New(pool, nil)})
	}
	_ = operators
	_, err := pgxaudit.New(nil, nil).Begin(context.Background(), console.Entry{})
	fmt.Println(err)
	// Output: pgxaudit: the pool is nil: make one with pgxpool.New
}
