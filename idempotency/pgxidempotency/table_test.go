package pgxidempotency_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/internal/idemtest"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

func exec(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Exec(ctx, text)
	return err
}

func TestAnswerIsSwallowed(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			open := func(t testing.TB) idempotencytest.Harness[pgx.Tx] { return harness(t, mode) }
			idemtest.AnswerIsSwallowed(t, idemtest.Postgres, open, exec)
		})
	}
}

func TestTableStays(t *testing.T) {
	t.Parallel()
	idemtest.TableStays(t, func(t testing.TB, url string) idempotency.Store[pgx.Tx] {
		return pgxidempotency.New(open(t, url, pgx.QueryExecModeExec), nil)
	}, exec)
}
