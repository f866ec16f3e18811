package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/outbox"
)

// What -naive shows is how many services begin. Nothing in it looks wrong.

// publisher sends events after the commit, if it gets that far.
type publisher struct {
	producer sarama.SyncProducer
	topic    string
}

func newPublisher(addrs []string, topic string) (*publisher, error) {
	cfg := naiveConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(addrs, cfg)
	return &publisher{producer, topic}, err
}

func naiveConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-billing"
	cfg.Version = sarama.V3_6_0_0
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	return cfg
}

func (p *publisher) publish(key string, event any) error {
	value, err := json.Marshal(event)
	if err != nil {
		return err
	}
	_, _, err = p.producer.SendMessage(&sarama.ProducerMessage{Topic: p.topic, Key: sarama.StringEncoder(key),
		Value: sarama.ByteEncoder(value)})
	return err
}

// naiveOrders writes the order, and then publishes the event: two places, no transaction around both. It does not look
// at keys.
func naiveOrders(ctx context.Context, l net.Listener, pool *pgxpool.Pool, topic string, inside *story.Inside) error {
	publisher, err := newPublisher(inside.Addrs(), topic)
	if err != nil {
		return err
	}
	defer publisher.producer.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var order Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, "this is not JSON", http.StatusBadRequest)
			return
		}
		order.ID = outbox.NewID()
		_, err := pool.Exec(r.Context(), `INSERT INTO orders (id, reference, cents) VALUES ($1, $2, $3)`, order.ID,
			order.Reference, order.Cents)
		if err == nil {
			err = publisher.publish(order.ID, order)
		}
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	return serve(ctx, l, inside.Answers(mux))
}

// naiveBilling calls, writes and publishes, one after the other. Each attempt has a new key.
func naiveBilling(ctx context.Context, t target, pool *pgxpool.Pool, b *billing, inside *story.Inside) error {
	publisher, err := newPublisher(t.addrs(), b.topic)
	if err != nil {
		return err
	}
	defer publisher.producer.Close()
	b.provider = &http.Client{Transport: idempotency.NewTransport(nil,
		&idempotency.TransportConfig{Attempts: 1, AttemptTimeout: 2 * time.Second})}
	return consumeNaively(ctx, t, inside, func(ctx context.Context, value []byte) error {
		var order Order
		if err := json.Unmarshal(value, &order); err != nil {
			return err
		}
		payment, err := b.pay(idempotency.WithKey(ctx, outbox.NewID()), order)
		if err != nil {
			return err
		}
		charge := Charge{OrderID: order.ID, Reference: order.Reference, Cents: order.Cents, PaymentID: payment}
		_, err = pool.Exec(ctx, `INSERT INTO charge (order_id, reference, cents, payment_id) VALUES ($1, $2, $3, $4)`,
			charge.OrderID, charge.Reference, charge.Cents, charge.PaymentID)
		if err != nil {
			return err
		}
		return publisher.publish(order.ID, charge)
	})
}

func naiveReceipts(ctx context.Context, t target, db *bun.DB, inside *story.Inside) error {
	return consumeNaively(ctx, t, inside, func(ctx context.Context, value []byte) error {
		var charge Charge
		if err := json.Unmarshal(value, &charge); err != nil {
			return err
		}
		_, err := db.NewInsert().Model(receiptOf(charge)).Exec(ctx)
		return err
	})
}

// naive is the loop of sarama's own example. Offsets are committed in the background, an error is logged.
type naive struct {
	handle func(ctx context.Context, value []byte) error
	inside *story.Inside
}

func (n *naive) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (n *naive) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (n *naive) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if err := n.one(session.Context(), msg); err != nil {
				slog.Error("a message was not handled", slog.Any("error", err)) // and is never seen again
			}
			session.MarkMessage(msg, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (n *naive) one(ctx context.Context, msg *sarama.ConsumerMessage) error {
	if err := n.inside.Delivered(ctx, msg.Topic, msg.Partition, msg.Offset); err != nil {
		return err
	}
	if err := n.handle(ctx, msg.Value); err != nil {
		return err
	}
	n.inside.Committed(story.BeforeMark(msg.Partition, msg.Offset))
	return nil
}

// consumeNaively joins the group again and again until ctx ends.
func consumeNaively(ctx context.Context, t target, inside *story.Inside,
	handle func(ctx context.Context, value []byte) error) error {
	cfg := naiveConfig()
	inside.Hurry()(cfg)
	group, err := sarama.NewConsumerGroup(t.addrs(), t.group, cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{t.topic}, &naive{handle, inside}); err != nil && ctx.Err() == nil {
			slog.Warn("joining the group failed", slog.Any("error", err))
			_ = pause(ctx, 250*time.Millisecond)
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
		slog.Warn("leaving the group", slog.Any("error", err))
	}
	return nil
}
