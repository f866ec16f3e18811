package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/rowtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/schema"
)

// ofRows is kind with one function that writes what all functions of a group hand in.
func ofRows(dialect schema.Dialect, group int) sqltest.Kind[*sql.Tx] {
	k := kind(dialect)
	k.New = func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[*sql.Tx] {
		shared := sqlstore.Config{}
		if cfg != nil {
			shared = *cfg
		}
		shared.Group = group
		return rowtest.Store(sqlstore.NewRows(db, dialect, &shared, rowtest.Flush[*sql.Tx]))
	}
	return k
}

// Functions that hand in rows keep the contract, alone and in groups.
func TestRowStore(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
			db := pgtest.Open(t, pgtest.Plain)
			h := sqltest.Postgres(t, db, db.URL, cached, ofRows(schema.Postgres, 50))
			h.Waiting = nil // calls wait for each other in the process
			return h
		})
	})
	for name, group := range map[string]int{"SQLite": 50, "SQLite, without groups": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
				return sqltest.SQLite(t, ofRows(schema.SQLite, group), sqlstore.Config{})
			})
		})
	}
}
