package forward_test

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
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

type order struct{ ID string }

func charge(context.Context, pgx.Tx, order) error { return nil }

// What fails comes back after 1 min, 10 min and 1 h, and dies then. These are the names of the topics to create.
func ExampleRetryTopics() {
	topics := func(pool *pgxpool.Pool) map[string]consumer.Topic {
		store := pgxstore.New(pool, nil)
		return forward.RetryTopics(store, pgxoutbox.NewWriter(nil), "orders", consumer.Topic{
			Consumer: "billing",
			Middleware: []consumer.Middleware{
				middleware.DeadLetter(store, pgxdeadletter.New(pool, nil), nil),
				middleware.Retry(5, nil),
				middleware.Recover(),
			},
			Handler: middleware.Dedup(store, consumer.JSONTx(charge), nil),
		}, nil)
	}
	_ = topics // goes into consumer.Config.Topics
	fmt.Println(forward.RetryTopicNames("orders", nil))
	// Output: [orders.retry.1m orders.retry.10m orders.retry.1h]
}

// Dead letters go to a topic, in the transaction of the record.
func ExampleDeadLetters() {
	topic := func(pool *pgxpool.Pool) consumer.Topic {
		store := pgxstore.New(pool, nil)
		return consumer.Topic{
			Middleware: []consumer.Middleware{
				middleware.DeadLetter(store, forward.DeadLetters(pgxoutbox.NewWriter(nil), "orders.dead", nil), nil),
				middleware.Retry(5, nil),
			},
			Handler: middleware.Dedup(store, consumer.JSONTx(charge), nil),
		}
	}
	fmt.Println(topic(nil).Handler != nil)
	// Output: true
}

// The dead letters of the last day are published again, as einmal dead redrive does.
func ExampleRedrive() {
	redrive := func(ctx context.Context, pool *pgxpool.Pool) (deadletter.Report, error) {
		cfg := &forward.RedriveConfig{RedriveConfig: deadletter.RedriveConfig{
			Filter:    deadletter.Filter{Consumer: "billing", Since: time.Now().Add(-24 * time.Hour)},
			PerSecond: 50,
		}}
		return forward.Redrive(ctx, pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil), pgxoutbox.NewWriter(nil), cfg)
	}
	_, err := redrive(context.Background(), nil)
	fmt.Println(err)
	// Output: deadletter: redrive: pgxdeadletter: the pool is nil: make one with pgxpool.New
}
