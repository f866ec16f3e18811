package libraries

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// gormStore is a store whose functions take a *gorm.DB in the transaction.
type gormStore struct{ *sqlstore.Store }

var _ dedupstore.Store[*gorm.DB] = gormStore{}

func (s gormStore) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *gorm.DB) error) (bool, error) {
	return s.Store.Once(ctx, key, func(ctx context.Context, tx *sql.Tx) error {
		g, err := gorm.Open(postgres.New(postgres.Config{Conn: tx}),
			&gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
		if err != nil {
			return err
		}
		return fn(ctx, g.WithContext(ctx))
	})
}

// A store for the type of another library, which is written in a few lines upon sqlstore's, keeps each promise.
func TestGORMStore(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]int{"single": 0, "groups": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*gorm.DB] { return gormHarness(t, group) })
		})
	}
}

func gormHarness(t testing.TB, group int) storetest.Harness[*gorm.DB] {
	url := serverstest.DatabaseURL(t)
	open := func() *sql.DB {
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	looks := open()
	if _, err := looks.ExecContext(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)+
		"create table effect (name text)"); err != nil {
		t.Fatal(err)
	}
	count := func(ctx context.Context, query string, args ...any) (n int, err error) {
		err = looks.QueryRowContext(ctx, query, args...).Scan(&n)
		return n, err
	}
	store := func(cfg sqlstore.Config) dedupstore.Store[*gorm.DB] {
		cfg.Group = group
		return gormStore{sqlstore.New(open(), schema.Postgres, &cfg)}
	}
	exec := func(query string) func(context.Context, *gorm.DB) error {
		return func(_ context.Context, g *gorm.DB) error { return g.Exec(query).Error }
	}
	lose := exec("select pg_terminate_backend(pg_backend_pid())")
	h := storetest.Harness[*gorm.DB]{
		Store: store(sqlstore.Config{}),
		Other: store(sqlstore.Config{}),
		Write: func(_ context.Context, g *gorm.DB, effect string) error {
			return g.Exec("insert into effect (name) values (?)", effect).Error
		},
		Effects: func(ctx context.Context, effect string) (int, error) {
			return count(ctx, "select count(*) from effect where name = $1", effect)
		},
		Waiting: func(ctx context.Context) (int, error) {
			return count(ctx, `select count(distinct pid) from pg_locks l join pg_locks w using (pid)
				where not l.granted and l.locktype = 'transactionid' and w.relation = 'processed_event'::regclass`)
		},
		Lose:  lose,
		Spoil: map[string]func(context.Context, *gorm.DB) error{"statement fails": exec("select 1/0"), "connection lost": lose},
		End: map[string]func(context.Context, *gorm.DB) error{
			"Commit":   func(_ context.Context, g *gorm.DB) error { return g.Commit().Error },
			"Rollback": func(_ context.Context, g *gorm.DB) error { return g.Rollback().Error },
			"COMMIT":   exec("commit"),
		},
		Impatient: store(sqlstore.Config{IdleTimeout: 300 * time.Millisecond}),
		Brief:     store(sqlstore.Config{LockTimeout: 100 * time.Millisecond}),
		Hasty:     store(sqlstore.Config{CommitTimeout: time.Millisecond}),
	}
	if group > 0 {
		h.Waiting = nil // calls wait in the process
	}
	return h
}
