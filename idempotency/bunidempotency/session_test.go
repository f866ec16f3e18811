package bunidempotency_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/einmal-go/einmal/idempotency/bunidempotency"
	"github.com/einmal-go/einmal/idempotency/internal/idemtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// No handler runs in a session that somebody has changed past the store.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t testing.TB, url string) *sql.DB{"pgx": pgxExec, "pgdriver": pgdriverDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := bun.NewDB(connect(t, serverstest.DatabaseURL(t)), pgdialect.New())
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(1)
			set := func(text string) error {
				_, err := pool.DB.ExecContext(t.Context(), text)
				return err
			}
			if err := set(schema.Postgres.SQL(nil, schema.Idempotency)); err != nil {
				t.Fatal(err)
			}
			idemtest.SessionThatOthersHaveChanged(t, bunidempotency.New(pool, nil), set,
				func(ctx context.Context, tx bun.Tx, text string) (settings string, err error) {
					err = tx.QueryRowContext(ctx, text).Scan(&settings)
					return settings, err
				})
		})
	}
}
