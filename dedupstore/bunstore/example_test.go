package bunstore_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/schema"
)

type booking struct {
	bun.BaseModel `bun:"table:charge"`

	OrderID string
}

// Once by itself, without Kafka: a second call with the same key does not run the function.
func Example() {
	ctx := context.Background()
	conn, err := sql.Open("sqlite", ":memory:?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	conn.SetMaxOpenConns(1) // the database is the connection's
	db := bun.NewDB(conn, sqlitedialect.New())
	if _, err := db.ExecContext(ctx, schema.SQLite.SQL(nil, schema.Dedup)+
		"create table charge (order_id text)"); err != nil {
		panic(err)
	}
	store := bunstore.New(db, nil)
	key := dedupstore.Key{Consumer: "billing", Event: "confirmed-A-1"}
	for range 2 {
		ran, err := store.Once(ctx, key, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&booking{OrderID: "A-1"}).Exec(ctx)
			return err
		})
		fmt.Println(ran, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
