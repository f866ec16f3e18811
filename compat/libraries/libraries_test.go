// Package libraries has the tests of libraries that work in a store's transaction, as docs/stores.md shows them.
package libraries

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	entdialect "entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/einmal-go/einmal/compat/libraries/queries"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

type order struct {
	ID    string
	Cents int64
}

type charge struct {
	OrderID string `db:"order_id" gorm:"column:order_id"`
	Cents   int64  `db:"cents"    gorm:"column:cents"`
}

// TableName is gorm's way to be told.
func (charge) TableName() string { return "charge" }

func withSqlx(ctx context.Context, tx *sql.Tx, order order) error {
	x := &sqlx.Tx{Tx: tx, Mapper: reflectx.NewMapperFunc("db", strings.ToLower)}
	_, err := x.ExecContext(ctx, "insert into charge (order_id, cents) values ($1, $2)", order.ID, order.Cents)
	return err
}

func withGORM(ctx context.Context, tx *sql.Tx, order order) error {
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: tx}), &gorm.Config{SkipDefaultTransaction: true})
	if err != nil {
		return err
	}
	return g.WithContext(ctx).Create(&charge{OrderID: order.ID, Cents: order.Cents}).Error
}

func withSqlc(ctx context.Context, tx *sql.Tx, order order) error {
	return queries.New(tx).InsertCharge(ctx, queries.InsertChargeParams{OrderID: order.ID, Cents: order.Cents})
}

// withEnt uses the driver that a generated client is given: ent.NewClient(ent.Driver(driver)).
func withEnt(ctx context.Context, tx *sql.Tx, order order) error {
	driver := entsql.NewDriver(entdialect.Postgres, entsql.Conn{ExecQuerier: tx})
	query, args := entsql.Dialect(entdialect.Postgres).Insert("charge").Columns("order_id", "cents").Values(order.ID,
		order.Cents).Query()
	return driver.Exec(ctx, query, args, nil)
}

// A library that works in the store's transaction leaves nothing behind if that is rolled back, and takes effect once
// if not.
func TestLibraries(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(context.Context, *sql.Tx, order) error{"sqlc": withSqlc, "sqlx": withSqlx,
		"GORM": withGORM, "ent": withEnt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("pgx", serverstest.DatabaseURL(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if _, err := db.ExecContext(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)+
				"create table charge (order_id text, cents bigint)"); err != nil {
				t.Fatal(err)
			}
			store := sqlstore.New(db, schema.Postgres, nil)
			broken := errors.New("broken")
			for _, fails := range []error{broken, nil, nil} {
				_, err := store.Once(t.Context(), dedupstore.Key{Consumer: "c", Event: "e"},
					func(ctx context.Context, tx *sql.Tx) error {
						return errors.Join(write(ctx, tx, order{"o", 7}), fails)
					})
				if (err != nil) != (fails != nil) || fails == nil && err != nil {
					t.Fatalf("Once: %v, want %v", err, fails)
				}
				if fails != nil && charges(t, db) != 0 {
					t.Error("what was written stays after a rollback")
				}
			}
			if n := charges(t, db); n != 1 {
				t.Errorf("%d charges, want 1", n)
			}
		})
	}
}

func charges(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(),
		"select count(*) from charge where order_id = 'o' and cents = 7").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// What docs/stores.md shows stands in this package, line by line.
func TestSnippets(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("libraries_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(code)) {
		lines[strings.TrimSpace(line)] = true
	}
	blocks := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) < 4 {
		t.Errorf("%d snippets were found", len(blocks))
	}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); !lines[line] {
				t.Errorf("the line is not here: %s", line)
			}
		}
	}
}
