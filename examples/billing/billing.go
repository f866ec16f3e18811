package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

const billingDoc = `
billing charges is the billing service. It charges confirmed orders: it has the provider take the money, writes a row in the table charge, and the event that it was
charged, once for each order, whatever is killed or delivered again. It sends its events to Kafka by itself. It creates its tables
where the database's search_path begins. Ctrl-C or SIGTERM drains it.`

// chargeTable has no unique constraint: the database would let an order be charged twice.
const chargeTable = `
CREATE TABLE IF NOT EXISTS charge (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id   text   NOT NULL,
	reference  text   NOT NULL,
	cents      bigint NOT NULL,
	payment_id text   NOT NULL
)`

// Charge is the event "an order was charged", the value of a message in JSON.
type Charge struct {
	OrderID   string `json:"order_id"`
	Reference string `json:"reference"`
	Cents     int64  `json:"cents"`
	PaymentID string `json:"payment_id"` // the provider's
}

// billingCommand is the service's main: ctx ends with SIGTERM, the pools are opened first and closed last.
func billingCommand(ctx context.Context, args []string, stdout io.Writer) error {
	var t target
	fs := newFlags("charges", billingDoc)
	t.addBrokers(fs)
	t.addDatabase(fs)
	t.addTopic(fs, "orders.confirmed")
	t.addGroup(fs, "billing-service")
	opsAddr := addOps(fs)
	payments := fs.String("payments", "payments.charged", "`topic` of what was charged, which must exist")
	share := addShare(fs)
	provider := fs.String("provider", "http://127.0.0.1:8082", "`URL` of the provider")
	if err := t.parse(fs, args, stdout); err != nil {
		return err
	}
	inside, err := story.Enter(ctx, stdout)
	if err != nil {
		return err
	}
	defer inside.Leave()
	o, err := openOps(ctx, "billing", *opsAddr)
	if err != nil {
		return err
	}
	defer o.start(ctx)()

	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	if err := t.createTables(ctx, pool, chargeTable, schema.Dedup, schema.Outbox); err != nil {
		pool.Close()
		return err
	}
	b := &billing{
		store:    pgxstore.New(pool, &pgxstore.Config{Group: *share}),
		provider: newProviderClient(),
		url:      *provider + "/charges",
		events:   pgxoutbox.NewWriter(nil),
		topic:    *payments,
	}
	switch {
	case inside.Is(story.Careful):
		defer pool.Close()
		return carefulBilling(ctx, t, pool, b, inside)
	case inside.Is(story.Plain):
		defer pool.Close()
		return naiveBilling(ctx, t, pool, b, inside)
	}
	err = b.run(ctx, t, o, inside)
	if !errors.Is(err, consumer.ErrHandlersStuck) { // a handler that does not return holds a connection, for which Close would wait
		pool.Close()
	}
	return err
}

// billing is what the service does with an order.
type billing struct {
	store    *pgxstore.Store
	provider *http.Client
	url      string
	events   *pgxoutbox.Writer
	topic    string
}

// charge is the handler. It knows nothing of Kafka, of repetitions or of crashes: the row, the event and the record
// that the order was handled are committed together, once. If they are not, the call is repeated with the same key, by
// which the provider knows it.
func (b *billing) charge(ctx context.Context, tx pgx.Tx, order Order) error {
	key, err := idempotency.KeyFor(ctx, "charge")
	if err != nil {
		return err
	}
	payment, err := b.pay(idempotency.WithKey(ctx, key), order)
	if err != nil {
		return err
	}
	charge := Charge{OrderID: order.ID, Reference: order.Reference, Cents: order.Cents, PaymentID: payment}
	_, err = tx.Exec(ctx, `INSERT INTO charge (order_id, reference, cents, payment_id) VALUES ($1, $2, $3, $4)`,
		charge.OrderID, charge.Reference, charge.Cents, charge.PaymentID)
	if err != nil {
		return err
	}
	value, err := json.Marshal(charge)
	if err != nil {
		return err
	}
	return b.events.Write(ctx, tx, outbox.Event{ID: order.ID, Topic: b.topic, Key: []byte(order.ID), Value: value})
}

// newProviderClient returns a client that repeats a call, with its key, until the answer is definite. A transaction is
// open meanwhile: the budget is below what a drain takes (consumer.DefaultDrainTimeout), so that a call which has begun
// can end.
func newProviderClient() *http.Client {
	return &http.Client{Transport: idempotency.NewTransport(tracedTransport{http.DefaultTransport},
		&idempotency.TransportConfig{
			RequireKey: true, AttemptTimeout: 2 * time.Second, Budget: 6 * time.Second, MinBackoff: 20 * time.Millisecond,
		})}
}

// pay has the provider take the money, and returns the payment's id.
func (b *billing) pay(ctx context.Context, order Order) (id string, err error) {
	body, err := json.Marshal(Payment{Reference: order.Reference, Cents: order.Cents})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.SetBasicAuth("billing", "")
	answer, err := b.provider.Do(req)
	if err != nil {
		return "", err // nobody knows whether it has paid: the next delivery asks with the same key
	}
	defer answer.Body.Close()
	switch after, _ := idempotency.RetryAfter(answer); {
	case answer.StatusCode == http.StatusCreated:
		var payment Payment
		err := json.NewDecoder(answer.Body).Decode(&payment)
		return payment.ID, err
	case idempotency.Again(answer):
		return "", consumer.RetryAfter(max(after, time.Second), fmt.Errorf("the provider answered %s", answer.Status))
	default:
		return "", consumer.Permanent(fmt.Errorf("the provider refused the payment: %s", answer.Status))
	}
}

// run charges until ctx ends. Then it stops in this order: the consumer takes no more messages, finishes those in work
// within its budget (consumer.Config.DrainTimeout), and leaves the group; the relay finishes its batch. The caller
// closes the pool after that.
func (b *billing) run(ctx context.Context, t target, o *ops, inside *story.Inside) error {
	relayPool, err := openPool(ctx, t.database) // of its own: a service that uses up its pool must not stop its relay
	if err != nil {
		return err
	}
	defer relayPool.Close()
	sender, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(relayPool), Brokers: t.addrs()})
	if err != nil {
		return err
	}
	chain := middleware.Standard(b.store, &middleware.StandardConfig[pgx.Tx]{Tracing: oneTrace, MeterProvider: o.meters()})
	c, err := consumer.New(consumer.Config{
		Brokers:    t.addrs(),
		Group:      t.group,
		Middleware: append(inside.Links(), waking(sender)),
		Topics:     map[string]consumer.Topic{t.topic: chain.Topic(consumer.JSONTx(b.charge))},
		Sarama:     inside.Hurry(),
	})
	if err == nil {
		err = errors.Join(o.addRelay(sender, pgxoutbox.NewDatabase(relayPool)), o.addConsumer(c))
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	relayCtx, stopRelay := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the consumer
	defer stopRelay()
	relayed := make(chan error, 1)
	go func() {
		relayed <- sender.Run(relayCtx)
		stop() // a service whose events are not sent must not go on as if they were
	}()
	err = c.Run(ctx)
	stopRelay()
	return errors.Join(err, <-relayed)
}

// oneTrace has a message's spans in the trace of the request that it comes from. By default they are linked to it: an
// event may be replayed when its trace has long been closed.
var oneTrace = &middleware.TracingConfig{Parent: true}

// waking wakes the relay when a message has been handled: its transaction is committed then.
func waking(r *relay.Relay) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			defer r.Wake()
			return next.Handle(ctx, msg)
		})
	}
}
