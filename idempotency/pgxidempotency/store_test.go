package pgxidempotency_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			idempotencytest.Run(t, func(t testing.TB) idempotencytest.Harness[pgx.Tx] { return harness(t, mode) })
		})
	}
}

func harness(t testing.TB, mode pgx.QueryExecMode) idempotencytest.Harness[pgx.Tx] {
	t.Helper()
	h, _ := directly(t, mode)
	return h
}

// directly returns a harness, and where its database is.
func directly(t testing.TB, mode pgx.QueryExecMode) (h idempotencytest.Harness[pgx.Tx], url string) {
	t.Helper()
	url = serverstest.DatabaseURL(t)
	pool := open(t, url, mode)
	for _, text := range []string{schema.Postgres.SQL(nil, schema.Idempotency),
		"create table effect (name text not null)"} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	return idempotencytest.Harness[pgx.Tx]{
		Store: pgxidempotency.New(pool, nil),
		Other: pgxidempotency.New(open(t, url, mode), nil),
		Write: func(ctx context.Context, tx pgx.Tx, effect string) error {
			_, err := tx.Exec(ctx, "insert into effect values ($1)", effect)
			return err
		},
		Effects: func(ctx context.Context, effect string) (n int, err error) {
			err = pool.QueryRow(ctx, "select count(*) from effect where name = $1", effect).Scan(&n)
			return n, err
		},
		Fail: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into effect values (null)")
			return err
		},
		End: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	}, url
}

func open(t testing.TB, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
