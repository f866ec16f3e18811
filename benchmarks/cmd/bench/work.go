package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers"
)

// work measures handlers that wait: 1 partition, 1,000 keys in turn, by key beside without order on the same number of
// workers.
func work(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("work", flag.ContinueOnError)
	messages := fs.Int("messages", 50_000, "messages per round")
	each := fs.Duration("each", 10*time.Millisecond, "time that a message takes")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	kafka, err := servers.RealKafka(ctx)
	if err != nil {
		return err
	}
	defer kafka.Close()
	fmt.Printf("%v of work per message, 1 partition, %d keys\nbroker    %s\nmachine   %s\nmessages  %d per round\n", *each,
		keys, kafka.Origin, machine(), *messages)
	return withTopic(kafka.Addrs, 1, *messages, func(int) []byte { return []byte("x") }, func(topic string) error {
		for _, workers := range []int{100, 1000} {
			run := func(order consumer.Order) func(context.Context) (float64, error) {
				return func(ctx context.Context) (float64, error) {
					return wait(ctx, kafka.Addrs, topic, *messages, *each, order, workers)
				}
			}
			results, err := interleave(ctx, *rounds, []side{{"Unordered", run(consumer.Unordered)},
				{"KeyOrder", run(consumer.KeyOrder)}})
			if err != nil {
				return err
			}
			report(os.Stdout, fmt.Sprintf("%d workers, msg/s", workers), results)
		}
		fmt.Printf("\nmachine   %s\n", machine())
		return nil
	})
}

// wait consumes with a handler that takes its time.
func wait(ctx context.Context, brokers []string, topic string, messages int, each time.Duration, order consumer.Order,
	workers int) (float64, error) {
	m := newMeter(messages)
	handler := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		time.Sleep(each)
		return nil
	})
	return m.until(ctx, func(ctx context.Context) error {
		return consumer.Run(ctx, consumer.Config{
			Brokers: brokers, Group: unique(), Middleware: []consumer.Middleware{m.link}, Logger: quiet,
			Topics: map[string]consumer.Topic{topic: {Handler: handler, Order: order, Workers: workers}},
		})
	})
}
