package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/outbox"
)

// What -careful shows is what a careful team writes without einmal: a unique key in the transaction of its effect,
// offsets after the commit, an outbox with a loop that sends it, and a key for each call, which is kept when the call
// is repeated. What is left is the process that dies between the provider's answer and its own COMMIT: the next
// delivery makes another key.

// carefulTable is an outbox of a table and an order.
const carefulTable = `
CREATE TABLE IF NOT EXISTS careful_outbox (
	id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	key   text  NOT NULL,
	value bytea NOT NULL
)`

// ordersByHand is the order service without einmal.
func ordersByHand(ctx context.Context, l net.Listener, pool *pgxpool.Pool, topic string, inside *story.Inside) error {
	if inside.Is(story.Plain) {
		return naiveOrders(ctx, l, pool, topic, inside)
	}
	return carefulOrders(ctx, l, pool, topic, inside)
}

// carefulOrders writes the order and its event in one transaction. The customer's reference is unique: a request that
// comes again finds its order.
func carefulOrders(ctx context.Context, l net.Listener, pool *pgxpool.Pool, topic string, inside *story.Inside) error {
	if err := createOwn(ctx, pool, carefulTable+
		`; CREATE UNIQUE INDEX IF NOT EXISTS orders_reference ON orders (reference)`); err != nil {
		return err
	}
	stop, err := sendCarefully(ctx, pool, inside.Addrs(), topic)
	if err != nil {
		return err
	}
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var order Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, "this is not JSON", http.StatusBadRequest)
			return
		}
		order.ID = outbox.NewID()
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
			done, err := tx.Exec(r.Context(),
				`INSERT INTO orders (id, reference, cents) VALUES ($1, $2, $3) ON CONFLICT (reference) DO NOTHING`, order.ID,
				order.Reference, order.Cents)
			if err != nil || done.RowsAffected() == 0 {
				return err
			}
			return keep(r.Context(), tx, order.ID, order)
		})
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	return serve(ctx, l, inside.Answers(mux))
}

// keep writes an event to the outbox.
func keep(ctx context.Context, tx pgx.Tx, key string, event any) error {
	value, err := json.Marshal(event)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO careful_outbox (key, value) VALUES ($1, $2)`, key, value)
	return err
}

// sendCarefully sends what is in the outbox until stop: the oldest first, deleted after they were acknowledged.
func sendCarefully(ctx context.Context, pool *pgxpool.Pool, addrs []string, topic string) (stop func(), err error) {
	publisher, err := newPublisher(addrs, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			n, err := publisher.sendBatch(ctx, pool)
			if err != nil && ctx.Err() == nil {
				slog.Warn("the outbox was not sent, it is tried again", slog.Any("error", err))
			}
			if n == 0 {
				_ = pause(ctx, 20*time.Millisecond)
			}
		}
	}()
	return func() {
		cancel()
		<-done
		_ = publisher.producer.Close()
	}, nil
}

// sendBatch sends up to a hundred events. One that was sent and not deleted, because the process died between, is sent
// again.
func (p *publisher) sendBatch(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, key, value FROM careful_outbox ORDER BY id LIMIT 100 FOR UPDATE`)
		if err != nil {
			return err
		}
		type event struct {
			ID    int64
			Key   string
			Value []byte
		}
		events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
		if err != nil {
			return err
		}
		var ids []int64
		for _, e := range events {
			_, _, err := p.producer.SendMessage(&sarama.ProducerMessage{Topic: p.topic, Key: sarama.StringEncoder(e.Key),
				Value: sarama.ByteEncoder(e.Value)})
			if err != nil {
				return err
			}
			ids = append(ids, e.ID)
		}
		n = len(events)
		_, err = tx.Exec(ctx, `DELETE FROM careful_outbox WHERE id = ANY($1)`, ids)
		return err
	})
	return n, err
}

// carefulBilling claims the order by a unique key, calls, and commits the charge with its event.
func carefulBilling(ctx context.Context, t target, pool *pgxpool.Pool, b *billing, inside *story.Inside) error {
	if err := createOwn(ctx, pool, carefulTable+
		`; CREATE UNIQUE INDEX IF NOT EXISTS charge_order ON charge (order_id)`); err != nil {
		return err
	}
	stop, err := sendCarefully(ctx, pool, t.addrs(), b.topic)
	if err != nil {
		return err
	}
	defer stop()
	return consumeCarefully(ctx, t, inside, func(ctx context.Context, value []byte) error {
		var order Order
		if err := json.Unmarshal(value, &order); err != nil {
			return err
		}
		key := outbox.NewID() // for all attempts at this call
		return again(ctx, func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return b.chargeCarefully(ctx, tx, key, order) })
		})
	})
}

func (b *billing) chargeCarefully(ctx context.Context, tx pgx.Tx, key string, order Order) error {
	done, err := tx.Exec(ctx, `INSERT INTO charge (order_id, reference, cents, payment_id) VALUES ($1, $2, $3, '') ON CONFLICT (order_id) DO NOTHING`,
		order.ID, order.Reference, order.Cents)
	if err != nil || done.RowsAffected() == 0 {
		return err
	}
	payment, err := b.pay(idempotency.WithKey(ctx, key), order)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE charge SET payment_id = $2 WHERE order_id = $1`, order.ID, payment); err != nil {
		return err
	}
	return keep(ctx, tx, order.ID, Charge{OrderID: order.ID, Reference: order.Reference, Cents: order.Cents,
		PaymentID: payment})
}

func carefulReceipts(ctx context.Context, t target, db *bun.DB, inside *story.Inside) error {
	if _, err := db.ExecContext(ctx, `CREATE UNIQUE INDEX IF NOT EXISTS receipt_order ON receipt (order_id)`); err != nil {
		return err
	}
	return consumeCarefully(ctx, t, inside, func(ctx context.Context, value []byte) error {
		var charge Charge
		if err := json.Unmarshal(value, &charge); err != nil {
			return err
		}
		return again(ctx, func() error {
			_, err := db.NewInsert().Model(receiptOf(charge)).On("CONFLICT (order_id) DO NOTHING").Exec(ctx)
			return err
		})
	})
}

// again repeats f until it succeeds: a message is not skipped.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		slog.Warn("a message was not handled, it is tried again", slog.Any("error", err))
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// careful commits the offset of a message after its transaction.
type careful struct{ naive }

func (c *careful) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if err := c.one(session.Context(), msg); err != nil {
				return fmt.Errorf("partition %d stops at offset %d: %w", msg.Partition, msg.Offset, err)
			}
			session.MarkMessage(msg, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

// consumeCarefully joins the group again and again until ctx ends.
func consumeCarefully(ctx context.Context, t target, inside *story.Inside,
	handle func(ctx context.Context, value []byte) error) error {
	cfg := naiveConfig()
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	inside.Hurry()(cfg)
	group, err := sarama.NewConsumerGroup(t.addrs(), t.group, cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{t.topic}, &careful{naive{handle, inside}}); err != nil && ctx.Err() == nil {
			slog.Warn("joining the group failed", slog.Any("error", err))
			_ = pause(ctx, 250*time.Millisecond)
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
		slog.Warn("leaving the group", slog.Any("error", err))
	}
	return nil
}
