package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// clientConfig is sarama's own defaults, but for the version, which decides what requests it may use.
func clientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-bench"
	cfg.Version = sarama.V3_6_0_0
	return cfg
}

// unique names a topic and its group.
func unique() string { return "einmal-bench-" + strings.ToLower(rand.Text()[:8]) }

// withTopic makes a topic with messages in it, evenly spread, runs f, and deletes the topic. Message i has the id
// "<i>".
func withTopic(brokers []string, partitions int32, messages int, value func(i int) []byte,
	f func(topic string) error) error {
	id := func(i int) []byte { return fmt.Append(nil, i) }
	return withEmptyTopic(brokers, partitions, func(topic string) error {
		if err := fill(brokers, topic, partitions, messages, id, value); err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
		return f(topic)
	})
}

// withEmptyTopic makes a topic, runs f, and deletes the topic.
func withEmptyTopic(brokers []string, partitions int32, f func(topic string) error) (err error) {
	topic := unique()
	admin, err := sarama.NewClusterAdmin(brokers, clientConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1},
		false); err != nil {
		return fmt.Errorf("create a topic: %w", err)
	}
	defer func() { err = errors.Join(err, admin.DeleteTopic(topic)) }()
	return f(topic)
}

// keys is how many keys the messages have.
const keys = 1000

// fill produces the messages. Message i has key i modulo keys, and goes to partition i modulo partitions.
func fill(brokers []string, topic string, partitions int32, messages int, id, value func(i int) []byte) error {
	cfg := clientConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Return.Successes = true
	cfg.Metadata.Retry.Max, cfg.Producer.Retry.Max = 20, 100 // a new topic has no leaders yet, and then a broker may not know that it leads
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	const batch = 5000
	for from := 0; from < messages; from += batch {
		var msgs []*sarama.ProducerMessage
		for i := from; i < min(from+batch, messages); i++ {
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(i) % partitions, Key: sarama.StringEncoder(fmt.Sprint("key-", i%keys)),
				Value:   sarama.ByteEncoder(value(i)),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: id(i)}},
			})
		}
		if err := producer.SendMessages(msgs); err != nil {
			return err
		}
	}
	return nil
}

// bare is the plain loop around a consumer group, with sarama's defaults: offsets are committed every second in the
// background.
type bare struct {
	handle func(msg *sarama.ConsumerMessage) error
	meter  *meter
}

func (b *bare) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (b *bare) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (b *bare) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		b.meter.start()
		if err := b.handle(msg); err != nil {
			log.Print(err)
			return err
		}
		session.MarkMessage(msg, "")
		b.meter.end()
	}
	return nil
}

// consume joins a group until ctx ends.
func (b *bare) consume(ctx context.Context, brokers []string, topic string) error {
	cfg := clientConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup(brokers, unique(), cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, b); err != nil && ctx.Err() == nil {
			log.Print(err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return group.Close()
}
