package sqlidempotency_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/internal/idemtest"
	"github.com/einmal-go/einmal/idempotency/sqlidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func exec(ctx context.Context, tx *sql.Tx, text string) error {
	_, err := tx.ExecContext(ctx, text)
	return err
}

func TestAnswerIsSwallowed(t *testing.T) {
	t.Parallel()
	for name, connect := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idemtest.AnswerIsSwallowed(t, idemtest.Postgres, func(t testing.TB) idempotencytest.Harness[*sql.Tx] {
				url := serverstest.DatabaseURL(t)
				return harness(t, schema.Postgres, func() *sql.DB { return connect(t, url) })
			}, exec)
		})
	}
}

func TestAnswerIsSwallowedBySQLite(t *testing.T) {
	t.Parallel()
	idemtest.AnswerIsSwallowed(t, idemtest.SQLite, sqlite, exec)
}

func TestTableStays(t *testing.T) {
	t.Parallel()
	idemtest.TableStays(t, func(t testing.TB, url string) idempotency.Store[*sql.Tx] {
		db := drivers["pgx"](t, url)
		t.Cleanup(func() { _ = db.Close() })
		return sqlidempotency.New(db, schema.Postgres, nil)
	}, exec)
}
