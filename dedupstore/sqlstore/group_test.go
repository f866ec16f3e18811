package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/schema"
)

// grouped is kind with transactions that several calls share.
func grouped(dialect schema.Dialect) sqltest.Kind[*sql.Tx] {
	k := kind(dialect)
	open := k.New
	k.New = func(db *sql.DB, cfg *sqlstore.Config) dedupstore.Store[*sql.Tx] {
		shared := sqlstore.Config{}
		if cfg != nil {
			shared = *cfg
		}
		shared.Group = 50
		return open(db, &shared)
	}
	return k
}

// Calls that share transactions keep the contract.
func TestStoreWithGroups(t *testing.T) {
	t.Parallel()
	for _, layout := range []pgtest.Layout{pgtest.Plain, pgtest.ByHash} {
		for _, driver := range []sqltest.Driver{cached, sqltest.Pgdriver} {
			t.Run(layout.Name+", "+driver.Name, func(t *testing.T) {
				t.Parallel()
				storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
					db := pgtest.Open(t, layout)
					h := sqltest.Postgres(t, db, db.URL, driver, grouped(schema.Postgres))
					h.Waiting = nil // calls wait for each other in the process
					return h
				})
			})
		}
	}
	for name, cfg := range map[string]sqlstore.Config{"SQLite, upsert": {}, "SQLite, do nothing": {DoNothing: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*sql.Tx] {
				return sqltest.SQLite(t, grouped(schema.SQLite), cfg)
			})
		})
	}
}

// What fails in a group is its own call's error, and the others take effect.
func TestGroupsWithFailures(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		db := pgtest.Open(t, pgtest.Plain)
		pool := cached.Open(t, db.URL, nil)
		t.Cleanup(func() { _ = pool.Close() })
		failures(t, sqlstore.New(pool, schema.Postgres, &sqlstore.Config{Group: 50}), "insert into effect (name) values ($1)")
		if n := db.Effects(); n != 270 {
			t.Errorf("%d effects", n)
		}
		if n := pgtest.Value[int](db, "select count(*) from processed_event"); n != 270 {
			t.Errorf("%d records", n)
		}
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		f := sqltest.NewFile(t)
		f.Run("create table if not exists effect (name text)")
		failures(t, sqlstore.New(f.DB, schema.SQLite, &sqlstore.Config{Group: 50}), "insert into effect (name) values (?1)")
		if n := f.Count("select count(*) from effect"); n != 270 {
			t.Errorf("%d effects", n)
		}
		if n := f.Count("select count(*) from processed_event"); n != 270 {
			t.Errorf("%d records", n)
		}
	})
}

// A function that ends the transaction leaves no record behind whose function has not run.
func TestGroupsWithACommit(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Plain)
	pool := cached.Open(t, db.URL, nil)
	t.Cleanup(func() { _ = pool.Close() })
	store := sqlstore.New(pool, schema.Postgres, &sqlstore.Config{Group: 50})
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			key := dedupstore.Key{Consumer: "c", Event: fmt.Sprint("event-", i)}
			for attempt := range 2 {
				_, err := store.Once(t.Context(), key, func(ctx context.Context, tx *sql.Tx) error {
					text, args := "insert into effect (name) values ($1)", []any{key.Event}
					if i%20 == 10 && attempt == 0 {
						text, args = "commit", nil
					}
					_, err := tx.ExecContext(ctx, text, args...)
					return err
				})
				if err != nil && !errors.Is(err, dedupstore.ErrTxEnded) {
					t.Errorf("event %d: %v", i, err)
				}
			}
		})
	}
	calls.Wait()
	if n := pgtest.Value[int](db, "select count(*) from processed_event p where not exists (select from effect e where e.name = p.event_id)"); n > 3 {
		t.Errorf("%d records without an effect", n)
	}
	if n := db.Effects(); n < 57 {
		t.Errorf("%d effects", n)
	}
}

// failures makes 300 calls at once, of which every tenth fails.
func failures(t *testing.T, store *sqlstore.Store, insert string) {
	t.Helper()
	var calls sync.WaitGroup
	for i := range 300 {
		calls.Go(func() {
			key := dedupstore.Key{Consumer: "c", Event: fmt.Sprint("event-", i)}
			ran, err := store.Once(t.Context(), key, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insert, key.Event); err != nil {
					return err
				}
				if i%10 == 7 {
					_, err := tx.ExecContext(ctx, "select no_such_column")
					return err
				}
				return nil
			})
			if ill := i%10 == 7; ill == ran || ill == (err == nil) {
				t.Errorf("event %d: Once() = %v, %v", i, ran, err)
			}
		})
	}
	calls.Wait()
}
