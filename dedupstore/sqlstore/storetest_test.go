package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// kind is a store for a dialect.
func kind(dialect schema.Dialect) sqltest.Kind[*sql.Tx] {
	return sqltest.Kind[*sql.Tx]{
		New: func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[*sql.Tx] {
			return sqlstore.New(db, dialect, cfg)
		},
		SQL: func(tx *sql.Tx) *sql.Tx { return tx },
		End: func(tx *sql.Tx) (commit, rollback func() error) { return tx.Commit, tx.Rollback },
	}
}

var cached = sqltest.Pgx(pgx.QueryExecModeCacheStatement)

func TestStoreOnPostgres(t *testing.T) {
	t.Parallel()
	for _, driver := range []sqltest.Driver{cached, sqltest.Pgx(pgx.QueryExecModeExec), sqltest.Pgdriver} {
		t.Run(driver.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
				db := pgtest.Open(t, pgtest.Plain)
				return sqltest.Postgres(t, db, db.URL, driver, kind(schema.Postgres))
			})
		})
	}
}

func TestStoreLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []pgtest.Layout{pgtest.Renamed, pgtest.Cheap, pgtest.ByHash, pgtest.ByRange} {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
				db := pgtest.Open(t, layout)
				return sqltest.Postgres(t, db, db.URL, cached, kind(schema.Postgres))
			})
		})
	}
	t.Run("17", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
			db := pgtest.OpenAt(t, serverstest.DatabaseURL17(t), pgtest.Plain)
			return sqltest.Postgres(t, db, db.URL, cached, kind(schema.Postgres))
		})
	})
}

func TestStoreBehindPgbouncer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
		db := pgtest.Open(t, pgtest.Plain)
		db.Layout.Schema = db.Schema
		return sqltest.Postgres(t, db, db.Behind(serverstest.PoolerURL(t)), sqltest.Pgx(pgx.QueryExecModeExec),
			kind(schema.Postgres))
	})
}

func TestStoreOnSQLite(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlstore.Config{"upsert": {}, "do nothing": {DoNothing: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
				return sqltest.SQLite(t, kind(schema.SQLite), cfg)
			})
		})
	}
}
