package sqldeadletter_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			deadtest.Run(t, func(t testing.TB) (h deadtest.Harness[*sql.Tx]) {
				cfg, err := pgx.ParseConfig(deadtest.Postgres(t, &h))
				if err != nil {
					t.Fatal(err)
				}
				cfg.DefaultQueryExecMode = mode
				db := stdlib.OpenDB(*cfg)
				t.Cleanup(func() { _ = db.Close() })
				complete(&h, db, schema.Postgres)
				return h
			})
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	deadtest.Run(t, func(t testing.TB) (h deadtest.Harness[*sql.Tx]) {
		complete(&h, deadtest.SQLite(t, &h), schema.SQLite)
		return h
	})
}

func complete(h *deadtest.Harness[*sql.Tx], db *sql.DB, dialect schema.Dialect) {
	table := sqldeadletter.New(db, dialect, nil)
	h.Table, h.Starts, h.Store = table, table.Starts(), sqlstore.New(db, dialect, nil)
	h.Write = func(ctx context.Context, tx *sql.Tx, effect string) error {
		_, err := tx.ExecContext(ctx, "insert into effect values ($1)", effect)
		return err
	}
	h.Exec = func(ctx context.Context, tx *sql.Tx, text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
	h.Limited = func(maxBytes int64, leave bool) deadletter.Table[*sql.Tx] {
		return sqldeadletter.New(db, dialect, &sqldeadletter.Config{MaxBytes: maxBytes, LeaveOut: leave})
	}
	h.Renamed = func() deadletter.Table[*sql.Tx] {
		return sqldeadletter.New(db, dialect, &sqldeadletter.Config{Table: `given "up"`})
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for says, table := range map[string]*sqldeadletter.Table{
		"the database is nil": sqldeadletter.New(nil, schema.SQLite, nil),
		`dialect "oracle"`:    sqldeadletter.New(&sql.DB{}, "oracle", nil),
	} {
		if err := table.Check(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Check: %v, want %q", err, says)
		}
	}
}
