package pgxdeadletter_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			deadtest.Run(t, func(t testing.TB) deadtest.Harness[pgx.Tx] { return harness(t, mode) })
		})
	}
}

func harness(t testing.TB, mode pgx.QueryExecMode) (h deadtest.Harness[pgx.Tx]) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(deadtest.Postgres(t, &h))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	table := pgxdeadletter.New(pool, nil)
	h.Table, h.Starts, h.Store = table, table.Starts(), pgxstore.New(pool, nil)
	h.Write = func(ctx context.Context, tx pgx.Tx, effect string) error {
		_, err := tx.Exec(ctx, "insert into effect values ($1)", effect)
		return err
	}
	h.Exec = func(ctx context.Context, tx pgx.Tx, text string) error {
		_, err := tx.Exec(ctx, text)
		return err
	}
	h.Limited = func(maxBytes int64, leave bool) deadletter.Table[pgx.Tx] {
		return pgxdeadletter.New(pool, &pgxdeadletter.Config{MaxBytes: maxBytes, LeaveOut: leave})
	}
	h.Renamed = func() deadletter.Table[pgx.Tx] {
		return pgxdeadletter.New(pool, &pgxdeadletter.Config{Table: `given "up"`})
	}
	return h
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for says, table := range map[string]*pgxdeadletter.Table{
		"the pool is nil":        pgxdeadletter.New(nil, nil),
		"Config.Table: 64 bytes": pgxdeadletter.New(nil, &pgxdeadletter.Config{Table: strings.Repeat("x", 64)}),
		"Config.MaxBytes: -1":    pgxdeadletter.New(nil, &pgxdeadletter.Config{MaxBytes: -1}),
	} {
		_, getErr := table.Get(t.Context(), 1)
		for what, err := range map[string]error{
			"Check": table.Check(t.Context()), "Write": table.Write(t.Context(), nil, &deadletter.Record{}), "Get": getErr,
			"Starts": table.Starts().Check(t.Context()),
		} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "pgxdeadletter: ") {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
	}
}
