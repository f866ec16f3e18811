package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
)

// naive is the consumer that -naive shows: the loop of sarama's own example, which many services begin with. Offsets are committed in
// the background, the charge is a transaction of its own, an error is logged. Nothing in it looks wrong.
type naive struct {
	pool       *pgxpool.Pool
	deliveries *deliveries
	control    *control
	work       time.Duration
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
			if err := n.handle(session.Context(), msg); err != nil {
				slog.Error("an order was not charged", slog.Any("error", err)) // and is never seen again
			}
			session.MarkMessage(msg, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (n *naive) handle(ctx context.Context, msg *sarama.ConsumerMessage) error {
	if err := n.deliveries.add(ctx, msg.Partition, msg.Offset); err != nil {
		return err
	}
	var order Order
	if err := json.Unmarshal(msg.Value, &order); err != nil {
		return err
	}
	if err := pause(ctx, n.work/2); err != nil {
		return err
	}
	if _, err := n.pool.Exec(ctx, `INSERT INTO charge (order_id, cents) VALUES ($1, $2)`, order.ID, order.Cents); err != nil {
		return err
	}
	n.control.committed(msg.Partition, msg.Offset)
	return pause(ctx, n.work/2)
}

// consumeNaively joins the group again and again until ctx ends.
func consumeNaively(ctx context.Context, t target, n *naive) error {
	cfg := newClientConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	hurry(cfg)
	group, err := sarama.NewConsumerGroup(t.addrs(), t.group, cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{t.topic}, n); err != nil && ctx.Err() == nil {
			slog.Warn("joining the group failed", slog.Any("error", err))
			_ = pause(ctx, 250*time.Millisecond)
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
		slog.Warn("leaving the group", slog.Any("error", err))
	}
	return nil
}
