package sqlidempotency_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/einmal-go/einmal/idempotency/internal/idemtest"
	"github.com/einmal-go/einmal/idempotency/sqlidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// No handler runs in a session that somebody has changed past the store.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for name, connect := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := connect(t, serverstest.DatabaseURL(t))
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(1)
			set := func(text string) error {
				_, err := pool.ExecContext(t.Context(), text)
				return err
			}
			if err := set(schema.Postgres.SQL(nil, schema.Idempotency)); err != nil {
				t.Fatal(err)
			}
			idemtest.SessionThatOthersHaveChanged(t, sqlidempotency.New(pool, schema.Postgres, nil), set,
				func(ctx context.Context, tx *sql.Tx, text string) (settings string, err error) {
					err = tx.QueryRowContext(ctx, text).Scan(&settings)
					return settings, err
				})
		})
	}
}
