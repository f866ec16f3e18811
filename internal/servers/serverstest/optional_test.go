package serverstest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// In transaction mode, a client has a session for a transaction, and another one for the next if somebody took the
// first.
func TestPoolerHandsOutSessionsByTransaction(t *testing.T) {
	t.Parallel()
	url := serverstest.PoolerURL(t)
	a, b := connect(t, url), connect(t, url)
	begin := func(c *pgx.Conn) (pgx.Tx, int) {
		tx, err := c.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		var pid int
		if err := tx.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return tx, pid
	}
	for range 10 { // other tests may take sessions, too
		first, pid := begin(a)
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		taken, other := begin(b)
		second, now := begin(a)
		if other == pid && now != pid {
			return
		}
		_ = second.Rollback(t.Context())
		_ = taken.Rollback(t.Context())
	}
	t.Error("a client kept its session although another one could have had it")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestDatabaseURL17(t *testing.T) {
	t.Parallel()
	var version string
	if err := connect(t, serverstest.DatabaseURL17(t)).QueryRow(t.Context(),
		"show server_version").Scan(&version); err != nil || !strings.HasPrefix(version, "17") {
		t.Errorf("version %s, %v", version, err)
	}
}
