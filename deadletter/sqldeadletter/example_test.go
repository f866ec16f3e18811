package sqldeadletter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// A message that fails for good becomes a row, and the partition goes on.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the database is the connection's
	if _, err := db.ExecContext(ctx, schema.SQLite.SQL(nil, schema.Dedup, schema.DeadLetter)); err != nil {
		panic(err)
	}
	store, dead := sqlstore.New(db, schema.SQLite, nil), sqldeadletter.New(db, schema.SQLite, nil)
	refuse := func(context.Context, *sql.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New("no such order"))
	}
	handler := middleware.DeadLetter(store, dead, nil)(middleware.Dedup(store, refuse, nil))
	msg := &consumer.Message{Consumer: "billing", EventID: "confirmed-A-1", Topic: "orders.confirmed", Offset: 7}
	fmt.Println(handler.Handle(ctx, msg))

	letters, err := dead.List(ctx, deadletter.Filter{Consumer: "billing"}, 0, 10)
	if err != nil {
		panic(err)
	}
	for _, l := range letters {
		fmt.Println(l.Event, l.Topic, l.Offset, l.Error)
	}
	// Output:
	// <nil>
	// confirmed-A-1 orders.confirmed 7 no such order
}
