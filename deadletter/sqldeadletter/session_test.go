package sqldeadletter_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/deadletter"

	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/schema"
)

// A session that somebody has changed past the table meets one call at most.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	var h deadtest.Harness[*sql.Tx]
	cfg, err := pgx.ParseConfig(deadtest.Postgres(t, &h))
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	deadtest.SessionThatOthersHaveChanged(t, func() (deadletter.Table[*sql.Tx], deadletter.Starts) {
		table := sqldeadletter.New(db, schema.Postgres, nil)
		return table, table.Starts()
	}, func(text string) error {
		_, err := db.ExecContext(t.Context(), text)
		return err
	})
}
