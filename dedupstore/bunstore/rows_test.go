package bunstore_test

import (
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/rowtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

// ofRows is kind with one function that writes what all functions of a group hand in.
func ofRows(dialect func() schema.Dialect) sqltest.Kind[bun.Tx] {
	k := kind(dialect)
	k.New = func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[bun.Tx] {
		shared := *cfg
		shared.Group = 50
		return rowtest.Store(bunstore.NewRows(bun.NewDB(db, dialect()), &shared, rowtest.Flush[bun.Tx]))
	}
	return k
}

// Functions that hand in rows keep the contract.
func TestRowStore(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
			db := pgtest.Open(t, pgtest.Plain)
			h := sqltest.Postgres(t, db, db.URL, sqltest.Pgdriver, ofRows(postgres))
			h.Waiting = nil // calls wait for each other in the process
			return h
		})
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
			return sqltest.SQLite(t, ofRows(sqlite), sqlstore.Config{})
		})
	})
}
