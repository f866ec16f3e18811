package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// order is the event "an order was confirmed", the value of a message in JSON, and the answer to the request.
type order struct {
	ID        string `einmal:"required" json:"order_id"`
	Reference string `einmal:"required" json:"reference"` // the customer's own
	Cents     int64  `einmal:"required" json:"cents"`
}

// orders takes orders.
type orders struct {
	events *pgxoutbox.Writer
	topic  string
}

// place writes the order and its event. It knows nothing of requests that come twice, of crashes or of Kafka: row,
// event and answer are one transaction, and a request that comes again with its Idempotency-Key gets the answer that
// the first one got.
func (o *orders) place(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var placed order
	if json.NewDecoder(r.Body).Decode(&placed) != nil || placed.Reference == "" || placed.Cents <= 0 {
		http.Error(w, `the body is not like {"reference": "yours", "cents": 700}`, http.StatusBadRequest)
		return nil //nolint:nilerr // the client has been told
	}
	placed.ID = outbox.NewID()
	_, err := tx.Exec(ctx, `insert into orders (id, reference, cents) values ($1, $2, $3)`,
		placed.ID, placed.Reference, placed.Cents)
	if err != nil {
		return err
	}
	value, err := json.Marshal(placed)
	if err != nil {
		return err
	}
	if err := o.events.Write(ctx, tx, outbox.Event{Topic: o.topic, Key: []byte(placed.ID), Value: value}); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(value)
	return err
}
