package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers"
)

// consume measures the runner alone: an empty handler, no database, beside a bare consumer group.
func consume(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("consume", flag.ContinueOnError)
	messages := fs.Int("messages", 1_000_000, "messages per round")
	size := fs.Int("size", 200, "bytes of a message's value")
	partitions := fs.Int("partitions", 4, "partitions of the topic")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	kafka, err := servers.RealKafka(ctx)
	if err != nil {
		return err
	}
	defer kafka.Close()
	fmt.Printf("consume only: an empty handler, no database\nbroker    %s\nmachine   %s\nmessages  %d of %d bytes\n",
		kafka.Origin, machine(), *messages, *size)
	payload := bytes.Repeat([]byte("x"), *size)
	return withTopic(kafka.Addrs, int32(*partitions), *messages, func(int) []byte { return payload }, func(topic string) error { //nolint:gosec // a small number
		results, err := interleave(ctx, *rounds, []side{
			{"bare consumer group", func(ctx context.Context) (float64, error) {
				m := newMeter(*messages)
				b := &bare{handle: func(*sarama.ConsumerMessage) error { return nil }, meter: m}
				return m.until(ctx, func(ctx context.Context) error { return b.consume(ctx, kafka.Addrs, topic) })
			}},
			{"einmal", func(ctx context.Context) (float64, error) {
				return empty(ctx, kafka.Addrs, topic, *messages, consumer.PartitionOrder)
			}},
			{"einmal, KeyOrder", func(ctx context.Context) (float64, error) {
				return empty(ctx, kafka.Addrs, topic, *messages, consumer.KeyOrder)
			}},
		})
		if err != nil {
			return err
		}
		report(os.Stdout, fmt.Sprintf("%d partitions, msg/s", *partitions), results)
		fmt.Printf("\nmachine   %s\n", machine())
		return nil
	})
}

// nothing is a handler that may be repeated.
type nothing struct{}

func (nothing) Handle(context.Context, *consumer.Message) error { return nil }
func (nothing) Link() consumer.Link                             { return consumer.LinkDedup }

// empty consumes with a handler that does nothing.
func empty(ctx context.Context, brokers []string, topic string, messages int, order consumer.Order) (float64, error) {
	m := newMeter(messages)
	return m.until(ctx, func(ctx context.Context) error {
		return consumer.Run(ctx, consumer.Config{
			Brokers: brokers, Group: unique(), Middleware: []consumer.Middleware{m.link}, Logger: quiet,
			Topics: map[string]consumer.Topic{topic: {Handler: nothing{}, Order: order}},
		})
	})
}
