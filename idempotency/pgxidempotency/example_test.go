package pgxidempotency_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// A second request with the key gets the answer to the first one, and no second order.
func Example() {
	placeOrder := func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		var id int64
		if err := tx.QueryRow(ctx, "insert into orders default values returning id").Scan(&id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprint(w, "order ", id)
		return err
	}
	// orders is mounted under POST /orders, when it is known that the table is there.
	orders := func(ctx context.Context, pool *pgxpool.Pool) (http.Handler, error) {
		store := pgxidempotency.New(pool, nil)
		if err := store.Check(ctx); err != nil {
			return nil, err
		}
		return idempotency.NewHandler(store, placeOrder, idempotency.HandlerConfig{
			Principal: func(*http.Request) (string, error) { return "shop-1", nil }, // yours: whose key it is
		})
	}
	_, err := orders(context.Background(), nil)
	fmt.Println(err)
	// Output: pgxstore: the pool is nil: make one with pgxpool.New
}
