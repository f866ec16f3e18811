package pgxdeadletter_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/middleware"
)

// A message that fails for good becomes a row, in a transaction with the record of its event, and the partition goes
// on.
func Example() {
	topic := func(pool *pgxpool.Pool, charge consumer.TxHandler[pgx.Tx]) consumer.Topic {
		store := pgxstore.New(pool, nil)
		chain := middleware.Standard(store, &middleware.StandardConfig[pgx.Tx]{DeadLetters: pgxdeadletter.New(pool, nil)})
		return chain.Topic(charge)
	}
	_ = topic
	_, err := pgxdeadletter.New(nil, nil).List(context.Background(), deadletter.Filter{}, 0, 10)
	fmt.Println(err)
	// Output: pgxdeadletter: the pool is nil: make one with pgxpool.New
}
