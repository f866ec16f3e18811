// Command quickstart sends one event twice and charges it once: go run ./examples/quickstart. It starts what it needs.
package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

func main() {
	ctx, stop := context.WithCancel(context.Background()) // yours: signal.NotifyContext
	kafka := must(servers.InProcessKafka(kfake.SeedTopics(1, "orders.confirmed")))
	tables := must(must(servers.Postgres(ctx)).NewSchema(ctx, "quickstart"))
	defer func() { must(0, tables.Drop(context.Background())) }()
	pool := must(pgxpool.New(ctx, tables.URL))
	defer pool.Close() // after Run has returned
	must(pool.Exec(ctx, schema.Postgres.SQL(nil, schema.Dedup)+"create table charge (order_id text)"))
	var records []*sarama.ProducerMessage
	for _, id := range []string{"A-1", "A-1", "A-2"} {
		records = append(records, &sarama.ProducerMessage{
			Topic: "orders.confirmed", Value: sarama.StringEncoder(`{"order": "` + id + `"}`),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("confirmed-" + id)}},
		})
	}
	conf := sarama.NewConfig()
	conf.Producer.Return.Successes = true // a SyncProducer needs it
	must(0, must(sarama.NewSyncProducer(kafka.Addrs, conf)).SendMessages(records))

	charge := func(ctx context.Context, tx pgx.Tx, event struct{ Order string }) error {
		if event.Order == "A-2" {
			defer stop() // the last one; Run lets it finish
		}
		_, err := tx.Exec(ctx, "insert into charge (order_id) values ($1)", event.Order)
		return err
	}
	chain := middleware.Standard(pgxstore.New(pool, nil), nil)
	must(0, consumer.Run(ctx, consumer.Config{
		Brokers: kafka.Addrs, Group: "billing-service",
		Topics: map[string]consumer.Topic{"orders.confirmed": chain.Topic(consumer.JSONTx(charge))},
	}))
	rows := must(pool.Query(context.Background(), "select order_id from charge order by order_id"))
	fmt.Println("3 messages, charged:", must(pgx.CollectRows(rows, pgx.RowTo[string])))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
