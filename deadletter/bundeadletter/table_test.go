package bundeadletter_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/bundeadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	deadtest.Run(t, func(t testing.TB) (h deadtest.Harness[bun.Tx]) {
		db := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(deadtest.Postgres(t, &h)))), pgdialect.New())
		t.Cleanup(func() { _ = db.Close() })
		complete(&h, db)
		return h
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	deadtest.Run(t, func(t testing.TB) (h deadtest.Harness[bun.Tx]) {
		complete(&h, bun.NewDB(deadtest.SQLite(t, &h), sqlitedialect.New()))
		return h
	})
}

func complete(h *deadtest.Harness[bun.Tx], db *bun.DB) {
	table := bundeadletter.New(db, nil)
	h.Table, h.Starts, h.Store = table, table.Starts(), bunstore.New(db, nil)
	h.Write = func(ctx context.Context, tx bun.Tx, effect string) error {
		_, err := tx.NewRaw("insert into effect values (?)", effect).Exec(ctx)
		return err
	}
	h.Exec = func(ctx context.Context, tx bun.Tx, text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
	h.Limited = func(maxBytes int64, leave bool) deadletter.Table[bun.Tx] {
		return bundeadletter.New(db, &sqldeadletter.Config{MaxBytes: maxBytes, LeaveOut: leave})
	}
	h.Renamed = func() deadletter.Table[bun.Tx] {
		return bundeadletter.New(db, &sqldeadletter.Config{Table: `given "up"`})
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	if err := bundeadletter.New(nil, nil).Check(t.Context()); err == nil {
		t.Error("Check of a nil database finds nothing wrong")
	}
}
