package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/schema"
)

// Once by itself, without Kafka: a second call with the same key does not run the function.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the database is the connection's
	if _, err := db.ExecContext(ctx, schema.SQLite.SQL(nil, schema.Dedup)+
		"create table charge (order_id text)"); err != nil {
		panic(err)
	}
	store := sqlstore.New(db, schema.SQLite, nil)
	key := dedupstore.Key{Consumer: "billing", Event: "confirmed-A-1"}
	for range 2 {
		ran, err := store.Once(ctx, key, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into charge (order_id) values ('A-1')")
			return err
		})
		fmt.Println(ran, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
