package bunidempotency_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/pgdriver"
	bunschema "github.com/uptrace/bun/schema"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/idempotency/bunidempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/idempotency/sqlidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t testing.TB, url string) *sql.DB{"pgx": pgxExec, "pgdriver": pgdriverDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idempotencytest.Run(t, func(t testing.TB) idempotencytest.Harness[bun.Tx] {
				url := serverstest.DatabaseURL(t)
				return harness(t, schema.Postgres, pgdialect.New(), func() *sql.DB { return connect(t, url) })
			})
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	idempotencytest.Run(t, func(t testing.TB) idempotencytest.Harness[bun.Tx] {
		dsn := "file:" + t.TempDir() + "/db?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"
		h := harness(t, schema.SQLite, sqlitedialect.New(), func() *sql.DB {
			db, err := sql.Open("sqlite", dsn)
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
		h.Waits, h.FailureStays = true, true
		return h
	})
}

// pgx's default mode prepares each of bun's texts, those of the handlers.
func TestCheckFindsADriverThatPrepares(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	for mode, fine := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: false, pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeExec: true,
		pgx.QueryExecModeSimpleProtocol: true,
	} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		db := stdlib.OpenDB(*cfg)
		if _, err := db.ExecContext(t.Context(), schema.Postgres.SQL(nil, schema.Idempotency),
			pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		err = bunidempotency.New(bun.NewDB(db, pgdialect.New()), nil).Check(t.Context())
		if (err == nil) != fine || err != nil &&
			!strings.Contains(err.Error(), "bunidempotency: the driver prepares every text") {
			t.Errorf("%v: Check: %v", mode, err)
		}
		_ = db.Close()
	}
}

func pgxExec(t testing.TB, url string) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return stdlib.OpenDB(*cfg)
}

func pgdriverDB(_ testing.TB, url string) *sql.DB {
	return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url)))
}

func harness(t testing.TB, dialect schema.Dialect, in bunschema.Dialect,
	open func() *sql.DB) idempotencytest.Harness[bun.Tx] {
	t.Helper()
	db, other := bun.NewDB(open(), in), bun.NewDB(open(), in)
	for _, pool := range []*bun.DB{db, other} {
		pool.SetMaxOpenConns(8)
		t.Cleanup(func() { _ = pool.Close() })
	}
	for _, text := range []string{dialect.SQL(nil, schema.Idempotency), "create table effect (name text not null)"} {
		if _, err := db.DB.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	cfg := &sqlidempotency.Config{}
	if dialect == schema.SQLite {
		cfg.CommitTimeout = 2 * 60e9
	}
	return idempotencytest.Harness[bun.Tx]{
		Store: bunidempotency.New(db, cfg),
		Other: bunidempotency.New(other, cfg),
		Write: func(ctx context.Context, tx bun.Tx, effect string) error {
			_, err := tx.NewInsert().Model(&effectRow{Name: effect}).Exec(ctx)
			return err
		},
		Effects: func(ctx context.Context, effect string) (int, error) {
			n, err := db.NewSelect().Model((*effectRow)(nil)).Where("name = ?", effect).Count(ctx)
			return int(n), err
		},
		Fail: func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into effect values (null)")
			return err
		},
		End: func(_ context.Context, tx bun.Tx) error { return tx.Commit() },
	}
}

type effectRow struct {
	bun.BaseModel `bun:"table:effect"`

	Name string
}
