package bunidempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/bunidempotency"
	"github.com/einmal-go/einmal/schema"
)

// A second request with the key gets the answer to the first one, and no second order.
func Example() {
	conn, err := sql.Open("sqlite", ":memory:?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	conn.SetMaxOpenConns(1) // the database is the connection's
	db := bun.NewDB(conn, sqlitedialect.New())
	if _, err := db.ExecContext(context.Background(), schema.SQLite.SQL(nil, schema.Idempotency)+
		"create table orders (id integer primary key)"); err != nil {
		panic(err)
	}
	placeOrder := func(ctx context.Context, tx bun.Tx, w http.ResponseWriter, _ *http.Request) error {
		var id int
		if err := tx.QueryRowContext(ctx, "insert into orders default values returning id").Scan(&id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprint(w, "order ", id)
		return err
	}
	handler, err := idempotency.NewHandler(bunidempotency.New(db, nil), placeOrder, idempotency.HandlerConfig{
		Principal: func(*http.Request) (string, error) { return "shop-1", nil }, // yours: whose key it is
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku": "A"}`))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 201 order 1
	// 201 order 1
}
