package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

const ordersDoc = `
billing orders is the order service: POST /orders writes an order, and the event that it is confirmed, in one transaction. A request
that comes again with its Idempotency-Key gets the answer that the first one got. It creates its tables where the database's search_path
begins. Ctrl-C or SIGTERM drains it. The events wait for billing relay.`

// orderTable has no unique constraint on reference: the database would let a request be two orders.
const orderTable = `
CREATE TABLE IF NOT EXISTS orders (
	id        text   PRIMARY KEY,
	reference text   NOT NULL,
	cents     bigint NOT NULL
)`

// Order is the event "an order was confirmed", the value of a message in JSON.
type Order struct {
	ID        string `json:"order_id"`
	Reference string `json:"reference"` // the customer's own
	Cents     int64  `json:"cents"`
}

// ordersCommand is the service's main: ctx ends with SIGTERM. Then, in this order: no more requests are taken, and
// those in work finish (serve returns); the last notification is sent; the pool is closed.
func ordersCommand(ctx context.Context, args []string, stdout io.Writer) error {
	var t target
	fs := newFlags("orders", ordersDoc)
	addr := addListen(fs, "127.0.0.1:8081")
	t.addDatabase(fs)
	t.addTopic(fs, "orders.confirmed")
	opsAddr := addOps(fs)
	if err := t.parse(fs, args, stdout); err != nil {
		return err
	}
	inside, err := story.Enter(ctx, stdout)
	if err != nil {
		return err
	}
	defer inside.Leave()
	o, err := openOps(ctx, "orders", *opsAddr)
	if err != nil {
		return err
	}
	defer o.start(ctx)()

	l, err := listen(ctx, *addr)
	if err != nil {
		return err
	}
	defer l.Close()
	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := t.createTables(ctx, pool, orderTable, schema.Outbox, schema.Idempotency); err != nil {
		return err
	}
	notifier := pgxoutbox.NewNotifier(pool, "", 0)
	defer notifier.Close()

	if !inside.Is(story.Einmal) {
		return ordersByHand(ctx, l, pool, t.topic, inside)
	}
	s := &orders{events: pgxoutbox.NewWriter(nil), topic: t.topic}
	// A service with many customers says by Principal whose key it is.
	place, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), s.place,
		idempotency.HandlerConfig{SingleTenant: true, OnAnswer: o.answered})
	if err != nil {
		return err
	}
	if err := place.Check(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", traced("POST /orders", notifying(notifier, place)))
	return serve(ctx, l, inside.Answers(mux))
}

// orders is what the service does with a request.
type orders struct {
	events *pgxoutbox.Writer
	topic  string
}

// place writes the order and its event. It knows nothing of repetitions, of crashes or of Kafka.
func (s *orders) place(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var order Order
	if json.NewDecoder(r.Body).Decode(&order) != nil || order.Reference == "" || order.Cents <= 0 {
		http.Error(w, `the body is not like {"reference": "yours", "cents": 700}`, http.StatusBadRequest)
		return nil //nolint:nilerr // the client has been told
	}
	order.ID = outbox.NewID()
	_, err := tx.Exec(ctx, `INSERT INTO orders (id, reference, cents) VALUES ($1, $2, $3)`, order.ID, order.Reference,
		order.Cents)
	if err != nil {
		return err
	}
	value, err := json.Marshal(order)
	if err != nil {
		return err
	}
	// The event has the order's id, so that an audit finds what it has led to.
	if err := s.events.Write(ctx, tx, outbox.Event{ID: order.ID, Topic: s.topic, Key: []byte(order.ID),
		Value: value}); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(value)
	return err
}

// notifying wakes the relay when a request has been answered: its transaction is committed then.
func notifying(notifier *pgxoutbox.Notifier, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		notifier.Notify()
	})
}
