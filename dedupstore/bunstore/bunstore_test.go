package bunstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func kind(dialect func() schema.Dialect) sqltest.Kind[bun.Tx] {
	return sqltest.Kind[bun.Tx]{
		New: func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[bun.Tx] {
			return bunstore.New(bun.NewDB(db, dialect()), cfg)
		},
		SQL: func(tx bun.Tx) *sql.Tx { return tx.Tx },
		End: func(tx bun.Tx) (commit, rollback func() error) { return tx.Commit, tx.Rollback },
	}
}

func postgres() schema.Dialect { return pgdialect.New() }
func sqlite() schema.Dialect   { return sqlitedialect.New() }

// Both drivers that bun's users have, in the modes that Check lets pass.
func TestStoreOnPostgres(t *testing.T) {
	t.Parallel()
	for _, driver := range []sqltest.Driver{sqltest.Pgdriver, sqltest.Pgx(pgx.QueryExecModeExec),
		sqltest.Pgx(pgx.QueryExecModeSimpleProtocol)} {
		t.Run(driver.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
				db := pgtest.Open(t, pgtest.Plain)
				return sqltest.Postgres(t, db, db.URL, driver, kind(postgres))
			})
		})
	}
}

func TestStoreLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []pgtest.Layout{pgtest.Renamed, pgtest.ByHash} {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
				db := pgtest.Open(t, layout)
				return sqltest.Postgres(t, db, db.URL, sqltest.Pgdriver, kind(postgres))
			})
		})
	}
	t.Run("17", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
			db := pgtest.OpenAt(t, serverstest.DatabaseURL17(t), pgtest.Plain)
			return sqltest.Postgres(t, db, db.URL, sqltest.Pgdriver, kind(postgres))
		})
	})
}

func TestStoreBehindPgbouncer(t *testing.T) {
	t.Parallel()
	for _, driver := range []sqltest.Driver{sqltest.Pgdriver, sqltest.Pgx(pgx.QueryExecModeSimpleProtocol)} {
		t.Run(driver.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
				db := pgtest.Open(t, pgtest.Plain)
				db.Layout.Schema = db.Schema
				return sqltest.Postgres(t, db, db.Behind(serverstest.PoolerURL(t)), driver, kind(postgres))
			})
		})
	}
}

func TestStoreOnSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Harness[bun.Tx] {
		return sqltest.SQLite(t, kind(sqlite), sqlstore.Config{})
	})
}

// charge is a model of a function's own.
type charge struct {
	bun.BaseModel `bun:"table:effect"`

	Name string
}

var key = dedupstore.Key{Consumer: "test", Event: "e"}

// bun's builder works in the transaction, and a savepoint of bun's is the function's own affair.
func TestBuilder(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Plain)
	pool := sqltest.Pgdriver.Open(t, db.URL, nil)
	t.Cleanup(func() { _ = pool.Close() })
	insert := func(name string) func(ctx context.Context, tx bun.Tx) error {
		return func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&charge{Name: name}).Exec(ctx)
			return err
		}
	}
	for _, want := range []bool{true, false} {
		ran, err := bunstore.New(bun.NewDB(pool, postgres()), nil).Once(t.Context(), key,
			func(ctx context.Context, tx bun.Tx) error {
				if err := insert("kept ?0 $1")(ctx, tx); err != nil {
					return err
				}
				if err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					if err := insert("dropped")(ctx, tx); err != nil {
						return err
					}
					_, err := tx.NewRaw("select 1/0").Exec(ctx)
					return err
				}); err == nil {
					t.Error("the savepoint's error is lost")
				}
				return nil
			})
		if ran != want || err != nil {
			t.Errorf("Once() = %v, %v, want %v", ran, err, want)
		}
	}
	if got := pgtest.Value[string](db, "select string_agg(name, ', ') from effect"); got != "kept ?0 $1" {
		t.Errorf("effects: %s", got)
	}
}

// pgx's default mode prepares each of bun's texts.
func TestCheckFindsADriverThatPrepares(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Plain)
	for mode, fine := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: false, pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeDescribeExec: true,
		pgx.QueryExecModeExec: true, pgx.QueryExecModeSimpleProtocol: true,
	} {
		pool := sqltest.Pgx(mode).Open(t, db.URL, nil)
		err := bunstore.New(bun.NewDB(pool, postgres()), nil).Check(t.Context())
		if (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Errorf("%v: Check: %v", mode, err)
		}
		_ = pool.Close()
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	for says, store := range map[string]*bunstore.Store{
		"the database is nil":    bunstore.New(nil, nil),
		"Config.Table: 64 bytes": bunstore.New(bun.NewDB(f.DB, postgres()), &sqlstore.Config{Table: strings.Repeat("x", 64)}),
	} {
		_, onceErr := store.Once(t.Context(), key, func(context.Context, bun.Tx) error { return nil })
		for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "bunstore: ") {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
	}
}

// What a function leaves in its session does not reach the next one.
func TestSessionIsNotHandedOn(t *testing.T) {
	t.Parallel()
	for name, pooler := range map[string]string{"direct": "", "pooler": serverstest.PoolerURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.SessionIsNotHandedOn(t, sqltest.Pgdriver, kind(postgres), pooler)
		})
	}
}

// No function runs in a session that somebody else has changed.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for name, pooler := range map[string]string{"direct": "", "pooler": serverstest.PoolerURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.SessionThatOthersHaveChanged(t, sqltest.Pgdriver, kind(postgres), pooler)
		})
	}
}
