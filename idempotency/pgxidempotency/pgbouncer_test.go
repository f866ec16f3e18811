package pgxidempotency_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// The modes that work behind a pooler which hands out sessions by transaction.
func TestStoreBehindPgbouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pooler := serverstest.PoolerURL(t)
			idempotencytest.Run(t, func(t testing.TB) idempotencytest.Harness[pgx.Tx] { return pooled(t, pooler, mode) })
		})
	}
}

// pooled is a harness whose stores go through the pooler. It takes no search_path, so that the schema stands in the
// statements.
func pooled(t testing.TB, pooler string, mode pgx.QueryExecMode) idempotencytest.Harness[pgx.Tx] {
	t.Helper()
	h, direct := directly(t, mode)
	at, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	via, err := url.Parse(pooler)
	if err != nil {
		t.Fatal(err)
	}
	via.Path = at.Path
	in := at.Query().Get("search_path")
	cfg := &pgxidempotency.Config{Schema: in}
	h.Store, h.Other = pgxidempotency.New(open(t, via.String(), mode), cfg),
		pgxidempotency.New(open(t, via.String(), mode), cfg)
	table := pgx.Identifier{in, "effect"}.Sanitize()
	h.Write = func(ctx context.Context, tx pgx.Tx, effect string) error {
		_, err := tx.Exec(ctx, "insert into "+table+" values ($1)", effect)
		return err
	}
	h.Fail = func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into "+table+" values (null)")
		return err
	}
	return h
}
