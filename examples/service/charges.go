package main

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// charge is the event "an order was charged", the value of a message in JSON.
type charge struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// charges takes the money for orders.
type charges struct {
	events *pgxoutbox.Writer
	topic  string
}

// charge is the handler. It knows nothing of Kafka, of repetitions or of crashes: the row, the event and the record
// that the message was handled are committed together, once.
func (c *charges) charge(ctx context.Context, tx pgx.Tx, confirmed order) error {
	done := charge{OrderID: confirmed.ID, Cents: confirmed.Cents}
	_, err := tx.Exec(ctx, `insert into charge (order_id, cents) values ($1, $2)`, done.OrderID, done.Cents)
	if err != nil {
		return err
	}
	value, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return c.events.Write(ctx, tx, outbox.Event{Topic: c.topic, Key: []byte(done.OrderID), Value: value})
}

// subscription is how the orders' topic is consumed: each order's messages in their order, different orders side by
// side.
func (c *charges) subscription(chain *middleware.Chain[pgx.Tx], workers int) consumer.Topic {
	topic := chain.Topic(consumer.JSONTx(c.charge))
	topic.Order = consumer.KeyOrder
	topic.Workers = workers
	return topic
}
