package crashtest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

// struckEvents is a writer of the outbox with a striker behind it.
type struckEvents struct {
	*pgxoutbox.Writer
	*striker
}

func (e struckEvents) Write(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	err := e.Writer.Write(ctx, tx, events...)
	if err == nil && e.inStore.Load() {
		e.at(inHandler)
	}
	return err
}

const retryDelay = 200 * time.Millisecond

// retrying makes a topic in which one event fails, and its retry topic, in which it does not. The striker stands around
// the hand-on.
func (c *child) retrying(pool *pgxpool.Pool) map[string]consumer.Topic {
	plain := pgxstore.New(pool, nil)
	return forward.RetryTopics[pgx.Tx](store{plain, &c.striker}, struckEvents{pgxoutbox.NewWriter(nil), &c.striker},
		c.Topic, consumer.Topic{
			Consumer:   "billing",
			Middleware: []consumer.Middleware{middleware.Retry(1, nil), middleware.Recover()},
			Handler: middleware.Dedup(plain, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				err := takeEffect(ctx, tx, msg, c.Name)
				if msg.EventID == c.Event && msg.Topic == c.Topic {
					return errors.Join(err, errors.New("not yet"))
				}
				return err
			}, nil),
		}, &forward.RetryTopicsConfig{Delays: []time.Duration{retryDelay},
			Name: func(string, time.Duration) string { return c.Retries }})
}

// relayUntilTheEnd runs a relay for the time of the test.
func (w *world) relayUntilTheEnd() {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), w.database)
	must(w.t, err)
	w.t.Cleanup(pool.Close)
	r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(pool), Brokers: w.b.Addrs, Workers: 1,
		Logger: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			w.t.Errorf("the relay: %v", err)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// A process is killed at each step of a hand-on to a retry topic, and another one goes on: the event is handed on once,
// or the message comes again for it, and it takes effect once, in the retry topic.
func TestHandOnKilledAt(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.regroup("nobody") // a message that was handed on has no effect yet when its offset is committed
				w.exec(schema.Postgres.SQL(nil, schema.Outbox))
				retries := b.Topic(t, 1)
				w.produceMany(inAll)
				o := w.struckAt(s.step)
				o.Retries = retries
				first := start(t, o)
				w.awaitStrike(first, s.step, s.tx)
				w.awaitNoSession(first.Name)
				if n := query[int](w, "select count(*) from outbox_event"); (n == 1) != s.done || n > 1 {
					t.Errorf("after the kill: %d events in the outbox, was it committed? %v", n, s.done)
				}
				o = w.member("second")
				o.Retries, o.Event = retries, event5
				second := start(t, o)
				w.relayUntilTheEnd()
				eventually(t, "all events have taken effect",
					func() bool { return query[int](w, "select count(distinct event) from effect") == inAll })
				w.produce(0, "event-last")
				eventually(t, "what comes after them takes effect",
					func() bool { return query[int](w, "select count(*) from effect where event = 'event-last'") == 1 })
				eventually(t, "the outbox is empty", func() bool { return query[int](w, "select count(*) from outbox_event") == 0 })
				second.Stop()
				if n := query[int](w, "select count(*) from effect"); n != inAll+1 {
					t.Errorf("%d effects, want %d", n, inAll+1)
				}
				if n := query[int](w, "select count(*) from processed_event where consumer_id = 'billing/retry/200ms'"); n != 1 ||
					n+inAll+1 != query[int](w, "select count(*) from processed_event") {
					t.Errorf("%d hand-ons are recorded, want 1 beside %d events", n, inAll+1)
				}
			})
		})
	}
}
