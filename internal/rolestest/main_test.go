package rolestest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// tables returns a pool of who owns all tables, and a table for effects.
func tables(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := serverstest.Pool(t)
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil))
	execute(t, pool, "create table effect (name text not null)")
	return pool
}

const effects = "grant insert on effect to %s"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func execute(t testing.TB, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 min: %s", what)
		}
	}
}
