package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers"
)

// kafkaWith is an in-process Kafka with a topic orders of one partition and one message per key.
func kafkaWith(keys ...string) (brokers []string, stop func()) {
	const topic = "orders"
	kafka, err := servers.InProcessKafka()
	if err != nil {
		panic(err)
	}
	c := sarama.NewConfig()
	c.Version, c.Producer.Return.Successes = sarama.V3_6_0_0, true
	admin, err := sarama.NewClusterAdmin(kafka.Addrs, c)
	if err != nil {
		panic(err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		panic(err)
	}
	p, err := sarama.NewSyncProducer(kafka.Addrs, c)
	if err != nil {
		panic(err)
	}
	defer func() { _ = p.Close() }()
	for i, key := range keys {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key),
			Value: sarama.StringEncoder(fmt.Sprint(i))}); err != nil {
			panic(err)
		}
	}
	return kafka.Addrs, func() { _ = kafka.Close() }
}

// Liveness is that the process answers; readiness is the Consumer's. A page or a test reads Status.
func ExampleConsumer_Ready() {
	brokers, stop := kafkaWith()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	assigned := make(chan struct{})
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: "billing", Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{"orders": {Handler: nop}},
		Hooks:  consumer.Hooks{Assigned: func(string, int32) { close(assigned) }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := c.Status()
		if s.NotReady != "" {
			http.Error(w, s.NotReady, http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]int{"partitions": len(s.Partitions)})
	})
	probe := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		fmt.Print(w.Code, " ", w.Body)
	}

	probe()
	var run sync.WaitGroup
	run.Go(func() { _ = c.Run(ctx) })
	<-assigned
	probe()
	cancel()
	run.Wait()
	probe()
	// Output:
	// 503 created
	// 200 {"partitions":1}
	// 503 stopped
}

// In KeyOrder one key's failing message holds back its key alone.
func ExampleTopic_order() {
	brokers, stop := kafkaWith("a", "b", "a", "b")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	done := map[string][]string{}
	handler := consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if string(msg.Key) == "a" && len(done["b"]) < 2 {
			return consumer.RetryAfter(0, fmt.Errorf("a waits for all of b"))
		}
		done[string(msg.Key)] = append(done[string(msg.Key)], string(msg.Value))
		if len(done["a"]) == 2 {
			cancel()
		}
		return nil
	})
	err := consumer.Run(ctx, consumer.Config{
		Brokers: brokers, Group: "billing", Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{"orders": {Handler: handler, Order: consumer.KeyOrder, Workers: 4}},
	})
	fmt.Println("a:", done["a"], "b:", done["b"], err)
	// Output:
	// a: [0 2] b: [1 3] <nil>
}

// A new group begins behind what is there, and commits that position at once. Limits bound what a stuck key leaves to
// be repeated after a crash.
func ExampleTopic_start() {
	brokers, stop := kafkaWith("old", "older")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := consumer.Run(ctx, consumer.Config{
		Brokers: brokers, Group: "audit", Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{"orders": {Handler: nop, Start: consumer.FromNewest()}},
		Limits: consumer.Limits{Ahead: 1000},
		Hooks: consumer.Hooks{
			Assigned: func(topic string, partition int32) { fmt.Println("assigned", topic, partition); cancel() },
			Revoked:  func(topic string, partition int32, _ time.Duration) { fmt.Println("revoked", topic, partition) },
		},
	})
	fmt.Println(err)
	// Output:
	// assigned orders 0
	// revoked orders 0
	// <nil>
}
