package consumer_test

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/consumer"
)

// Order is an event, as it stands in the topic in JSON.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// broker starts a Kafka within this process and puts two orders into it.
func broker() (addrs []string, stop func()) {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	conf := sarama.NewConfig()
	conf.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(cluster.ListenAddrs(), conf)
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	for _, value := range []string{`{"id": "A-1", "cents": 1250}`, `{"id": "A-2", "cents": 399}`} {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders",
			Value: sarama.StringEncoder(value)}); err != nil {
			panic(err)
		}
	}
	return cluster.ListenAddrs(), cluster.Close
}

// A whole consumer: Run joins the group, calls the function for each order, and returns once ctx is done and what was
// in work has finished. A real program makes ctx with signal.NotifyContext.
func Example() {
	brokers, closeBroker := broker()
	defer closeBroker()
	ctx, stop := context.WithCancel(context.Background())

	charge := func(ctx context.Context, order Order) error {
		msg, _ := consumer.MessageFrom(ctx)
		fmt.Printf("%s: %d cents, from %s at offset %d\n", order.ID, order.Cents, msg.Topic, msg.Offset)
		if order.ID == "A-2" {
			stop()
		}
		return nil
	}
	err := consumer.Run(ctx, consumer.Config{
		Brokers: brokers,
		Group:   "billing-service",
		Topics:  map[string]consumer.Topic{"orders": {Handler: consumer.JSON(charge)}},
	})
	fmt.Println("stopped:", err)
	// Output:
	// A-1: 1250 cents, from orders at offset 0
	// A-2: 399 cents, from orders at offset 1
	// stopped: <nil>
}
