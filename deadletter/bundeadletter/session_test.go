package bundeadletter_test

import (
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/bundeadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
)

// A session that somebody has changed past the table meets one call at most.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	var h deadtest.Harness[bun.Tx]
	db := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(deadtest.Postgres(t, &h)))), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	deadtest.SessionThatOthersHaveChanged(t, func() (deadletter.Table[bun.Tx], deadletter.Starts) {
		table := bundeadletter.New(db, nil)
		return table, table.Starts()
	}, func(text string) error {
		_, err := db.DB.ExecContext(t.Context(), text)
		return err
	})
}
