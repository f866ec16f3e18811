package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/janitor/janitormetrics"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
	"github.com/einmal-go/einmal/schema"
)

// service is the parts and what they share.
type service struct {
	cfg       config
	log       *slog.Logger
	telemetry *telemetry
	db        *database
	events    *pgxoutbox.Writer
	dead      *pgxdeadletter.Table
	topic     consumer.Topic // of the orders

	relay    *relay.Relay
	consumer *consumer.Consumer
	janitor  *janitor.Janitor
	requests http.Handler

	http, ops net.Listener
	joined    atomic.Bool // the consumer has had an assignment
}

// newService makes the parts, and opens the ports. The caller closes it.
func newService(ctx context.Context, log *slog.Logger, cfg config) (s *service, err error) {
	s = &service{cfg: cfg, log: log, events: pgxoutbox.NewWriter(nil)}
	if s.db, err = openDatabase(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(nil))
		}
	}()
	if s.telemetry, err = openTelemetry(ctx, log, cfg); err != nil {
		return s, err
	}
	s.dead = pgxdeadletter.New(s.db.pool, nil)
	s.topic = s.subscription()
	if err = errors.Join(s.newRelay(), s.newConsumer()); err != nil {
		return s, err
	}
	if err = errors.Join(s.newJanitor(), s.newRequests()); err != nil {
		return s, err
	}
	listen := net.ListenConfig{}
	if s.ops, err = listen.Listen(ctx, "tcp", cfg.opsAddr); err != nil {
		return s, err
	}
	s.http, err = listen.Listen(ctx, "tcp", cfg.httpAddr)
	return s, err
}

// run serves until ctx ends. Then it stops in this order: no more requests; no more messages; no more events, when
// all that has been written is on its way or left to the other processes; the janitor; and last what operators watch
// it by.
func (s *service) run(ctx context.Context) error {
	return runParts(ctx, s.log,
		part{"http", httpServer(s.http, s.requests, s.cfg.requestTimeout)},
		part{"consumer", s.consumer.Run},
		part{"relay", s.relay.Run},
		part{"janitor", s.janitor.Run},
		part{"ops", httpServer(s.ops, s.probes(ctx), time.Second)},
	)
}

// close flushes the telemetry and closes the pools. why is what run has returned: a handler that does not return
// holds a connection, for which closing the pool would wait.
func (s *service) close(why error) (err error) {
	for _, l := range []net.Listener{s.http, s.ops} {
		if l != nil {
			_ = l.Close() // of a service that has not run
		}
	}
	if s.telemetry != nil {
		err = s.telemetry.close()
	}
	if !errors.Is(why, consumer.ErrHandlersStuck) {
		err = errors.Join(err, s.db.close())
	}
	return err
}

func (s *service) newRelay() (err error) {
	s.relay, err = relay.New(relay.Config{
		Database: pgxoutbox.NewDatabase(s.db.relay), Brokers: s.cfg.brokers, Sarama: s.cfg.kafka,
		Logger: s.log, TracerProvider: s.telemetry.tracers,
	})
	if err != nil {
		return err
	}
	_, err = relaymetrics.Register(s.relay, &relaymetrics.Config{MeterProvider: s.telemetry.meters})
	return err
}

func (s *service) newConsumer() (err error) {
	s.consumer, err = consumer.New(s.consumerConfig())
	if err != nil {
		return err
	}
	_, err = consumermetrics.Register(s.consumer, &consumermetrics.Config{MeterProvider: s.telemetry.meters})
	return err
}

// heldBytes is how many bytes of messages wait in memory, at most. The container's limit must leave room for it, see
// deploy.
const heldBytes = 64 << 20

// consumerConfig is what the tests of the handlers take, too.
func (s *service) consumerConfig() consumer.Config {
	return consumer.Config{
		Brokers: s.cfg.brokers, Group: s.cfg.group, InstanceID: s.cfg.instanceID, Sarama: s.cfg.kafka,
		DrainTimeout: s.cfg.drainTimeout, Limits: consumer.Limits{Bytes: heldBytes}, Logger: s.log,
		Middleware: []consumer.Middleware{s.waking},
		Topics:     map[string]consumer.Topic{s.cfg.ordersTopic: s.topic},
	}
}

// subscription is the chain around the handler: tracing, metrics, logging, dead letters, attempts, and the transaction.
func (s *service) subscription() consumer.Topic {
	chain := middleware.Standard(pgxstore.New(s.db.pool, nil), &middleware.StandardConfig[pgx.Tx]{
		DeadLetters:    s.dead,
		Dedup:          &middleware.DedupConfig{Window: s.cfg.window},
		Logger:         s.log,
		TracerProvider: s.telemetry.tracers,
		MeterProvider:  s.telemetry.meters,
	})
	c := charges{events: s.events, topic: s.cfg.paymentsTopic}
	return c.subscription(chain, s.cfg.workers)
}

// waking wakes the relay when a message has been handled: its transaction is committed then.
func (s *service) waking(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		defer s.relay.Wake()
		return next.Handle(ctx, msg)
	})
}

// newJanitor deletes records that no message can come for any more, and answers that have expired.
func (s *service) newJanitor() (err error) {
	s.janitor, err = janitor.New(s.db.janitor, schema.Postgres, janitor.Config{
		Tables: []janitor.Table{
			{Name: "processed_event", Column: "processed_at", Keep: s.cfg.window, Dedup: []any{s.topic.Handler}},
			{Name: "idempotency_key", Column: "expires_at", Keep: time.Hour},
		},
		Logger: s.log,
	})
	if err != nil {
		return err
	}
	_, err = janitormetrics.Register(s.janitor, &janitormetrics.Config{MeterProvider: s.telemetry.meters})
	return err
}

// newRequests is what customers reach.
func (s *service) newRequests() error {
	answered, err := idempotencymetrics.OnAnswer(&idempotencymetrics.Config{MeterProvider: s.telemetry.meters})
	if err != nil {
		return err
	}
	o := orders{events: s.events, topic: s.cfg.ordersTopic}
	place, err := idempotency.NewHandler(pgxidempotency.New(s.db.pool, nil), o.place, idempotency.HandlerConfig{
		SingleTenant: true, // where clients are several, Principal says whose key it is
		OnAnswer:     answered,
		Logger:       s.log,
	})
	if err != nil {
		return err
	}
	waking := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.relay.Wake() // the transaction is committed then
		place.ServeHTTP(w, r)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.telemetry.route("POST /orders", waking))
	s.requests = mux
	return nil
}
