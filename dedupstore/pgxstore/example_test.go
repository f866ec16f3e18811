package pgxstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// Once by itself, without Kafka: a second call with the same key does not run the function.
func Example() {
	charge := func(ctx context.Context, pool *pgxpool.Pool, orderID string) (ran bool, err error) {
		key := dedupstore.Key{Consumer: "billing", Event: "confirmed-" + orderID}
		return pgxstore.New(pool, nil).Once(ctx, key, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into charge (order_id, cents) values ($1, $2)", orderID, 1250)
			return err
		})
	}
	ran, err := charge(context.Background(), nil, "A-1")
	fmt.Println(ran, err)
	// Output: false pgxstore: the pool is nil: make one with pgxpool.New
}
