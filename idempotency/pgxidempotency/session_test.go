package pgxidempotency_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency/internal/idemtest"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// No handler runs in a session that somebody has changed past the store.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	set := func(text string) error {
		_, err := pool.Exec(t.Context(), text)
		return err
	}
	if err := set(schema.Postgres.SQL(nil, schema.Idempotency)); err != nil {
		t.Fatal(err)
	}
	idemtest.SessionThatOthersHaveChanged(t, pgxidempotency.New(pool, nil), set,
		func(ctx context.Context, tx pgx.Tx, text string) (settings string, err error) {
			err = tx.QueryRow(ctx, text).Scan(&settings)
			return settings, err
		})
}
