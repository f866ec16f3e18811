package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

// watermill forwards a fifth of the rows by watermill's Forwarder: it sends them one by one, so a rate of them is as
// good.
func (r *outboxRound) watermill(ctx context.Context) error {
	rows := r.rows / 5
	log := watermill.NopLogger{}
	db := sql.BeginnerFromPgx(r.pool)
	const queue = "outgoing"
	schema := sql.DefaultPostgreSQLSchema{SubscribeBatchSize: 200}
	table, err := sql.NewPublisher(db, sql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, log)
	if err != nil {
		return err
	}
	defer table.Close()
	outgoing := forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: queue})
	for from := 0; from < rows; from += 500 {
		var msgs []*message.Message
		for i := from; i < min(from+500, rows); i++ {
			msg := message.NewMessage(fmt.Sprint(i), r.value)
			msg.Metadata.Set("key", fmt.Sprint("key-", i%keys))
			msgs = append(msgs, msg)
		}
		if err := outgoing.Publish(r.topic, msgs...); err != nil {
			return err
		}
	}
	cfg := clientConfig()
	cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = -1, true
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: r.kafka.Addrs, OverwriteSaramaConfig: cfg,
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string,
			error) {
			return msg.Metadata.Get("key"), nil
		}),
	}, log)
	if err != nil {
		return err
	}
	counted := &counter{Publisher: publisher, total: int64(rows), done: make(chan struct{})}
	sub, err := sql.NewSubscriber(db, sql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: 10 * time.Millisecond,
	}, log)
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(sub, counted, log, forwarder.Config{ForwarderTopic: queue})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	r.begun = time.Now()
	go func() { ended <- f.Run(running) }()
	select {
	case <-counted.done:
	case err := <-ended:
		return fmt.Errorf("the forwarder ended: %w", err)
	case <-time.After(3 * time.Minute):
		return fmt.Errorf("the forwarder sent %d of %d in 3 minutes", counted.n.Load(), rows)
	}
	// as if it had sent all
	r.took = time.Since(r.begun) * time.Duration(r.rows) / time.Duration(rows)
	stop()
	return <-ended
}

// counter counts what was published.
type counter struct {
	message.Publisher
	total int64
	n     atomic.Int64
	done  chan struct{}
}

func (c *counter) Publish(topic string, msgs ...*message.Message) error {
	err := c.Publisher.Publish(topic, msgs...)
	if err == nil && c.n.Add(int64(len(msgs))) == c.total {
		close(c.done)
	}
	return err
}
