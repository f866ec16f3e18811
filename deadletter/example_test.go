package deadletter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// Once the cause is repaired, the consumer's own function runs on what died in the last day.
func ExampleRedrive() {
	type order struct{ ID string }
	charge := func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, "insert into charge (order_id) values ($1)", o.ID)
		return err
	}
	redrive := func(ctx context.Context, pool *pgxpool.Pool) (deadletter.Report, error) {
		return deadletter.Redrive(ctx, pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil), consumer.JSONTx(charge),
			&deadletter.RedriveConfig{
				Filter: deadletter.Filter{Consumer: "billing-service/orders.confirmed", Since: time.Now().Add(-24 * time.Hour)},
			})
	}
	_, err := redrive(context.Background(), nil)
	fmt.Println(err)
	// Output: deadletter: redrive: pgxdeadletter: the pool is nil: make one with pgxpool.New
}
