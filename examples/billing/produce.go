package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
)

const produceDoc = `
billing produce sends confirmed orders to a topic, some of them twice: one in ten twice in a row, one in ten again much later. It
creates the topic if it is missing. The same -seed sends the same events, which a consumer that has seen them skips.`

func produceCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var t target
	fs := newFlags("produce", produceDoc)
	t.addBrokers(fs)
	t.addTopic(fs)
	n := fs.Int("n", 3000, "`orders` to send")
	partitions := fs.Int("partitions", 4, "`partitions` of the topic if it is created")
	seed := fs.Uint64("seed", 0, "`seed` of the orders' amounts and ids (default: random)")
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	if err := errors.Join(t.complete(fs), inRange(fs, "n", *n, 1, maxOrders), inRange(fs, "partitions", *partitions, 1, 1000)); err != nil {
		return err
	}
	if err := createTopic(ctx, t, int32(*partitions)); err != nil { //nolint:gosec // it is in range
		return err
	}
	*seed = cmp.Or(*seed, randomSeed())
	events := makeEvents(*n, *seed)
	if err := produce(ctx, t, events); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s messages about %s orders, %s in all, are in topic %s; -seed %d sends the same again\n",
		thousands(int64(len(events))), thousands(int64(*n)), money(total(priceList(events))), t.topic, *seed)
	return nil
}

// produceBatch is how many messages are sent before ctx is looked at.
const produceBatch = 500

// produce returns when all in-sync replicas have acknowledged all events.
func produce(ctx context.Context, t target, events []event) error {
	cfg := newClientConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true // else a retry inside the client could double or reorder
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(t.addrs(), cfg)
	if err != nil {
		return fmt.Errorf("reach the brokers %s: %w", t.brokers, err)
	}
	defer producer.Close()
	for batch := range slices.Chunk(events, produceBatch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		msgs, err := messages(t.topic, batch)
		if err != nil {
			return err
		}
		if err := producer.SendMessages(msgs); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	return nil
}

// messages puts the id of each event where einmal looks for it, and keys it by its order.
func messages(topic string, events []event) ([]*sarama.ProducerMessage, error) {
	var msgs []*sarama.ProducerMessage
	for _, e := range events {
		value, err := json.Marshal(e.order)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(e.order.ID),
			Value:   sarama.ByteEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte(consumer.DefaultEventIDHeader), Value: []byte(e.id)}},
		})
	}
	return msgs, nil
}
