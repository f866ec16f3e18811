package forward_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// run runs what blocks until its context ends, for the time of the test.
func run(t testing.TB, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := f(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// relay sends what stands in the outbox.
func (f *fixture) relay(b *serverstest.Broker) {
	f.t.Helper()
	r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(f.pool), Brokers: b.Addrs, Logger: quiet(),
		IdleInterval: 50 * time.Millisecond})
	must(f.t, err)
	run(f.t, "the relay", r.Run)
}

// allSent reports whether the relay has got as far as what consumers may have seen before.
func (f *fixture) allSent() bool { return f.count("select count(*) from outbox_event") == 0 }

// consume runs a consumer.
func (f *fixture) consume(b *serverstest.Broker, group string, topics map[string]consumer.Topic) {
	f.t.Helper()
	c, err := consumer.New(consumer.Config{Brokers: b.Addrs, Group: group, Topics: topics, Logger: quiet(), Sarama: hurry})
	must(f.t, err)
	run(f.t, "the consumer", c.Run)
}

// hurry finds topics, partitions and messages soon.
func hurry(c *sarama.Config) {
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
	c.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
}

func produced(topic string, ids ...string) (msgs []*sarama.ProducerMessage) {
	for _, id := range ids {
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value of " + id),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
		})
	}
	return msgs
}

// A message dies, into the table and into a topic, in one transaction. The cause is repaired, and it is redriven: it
// goes by the outbox and Kafka back to its consumer, and takes effect once, however often it is delivered.
func TestDeadAndBack(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		f := open(t)
		orders, dead, group := b.Topic(t, 2), b.Topic(t, 1), serverstest.Group(t)
		store, table, events := pgxstore.New(f.pool, nil), pgxdeadletter.New(f.pool, nil), pgxoutbox.NewWriter(nil)
		letters := forward.DeadLetters(events, dead, nil)
		both := deadletter.WriterFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, rec *deadletter.Record) error {
			if err := table.Write(ctx, tx, rec); err != nil {
				return err
			}
			return letters.Write(ctx, tx, rec)
		})
		var repaired atomic.Bool
		effect := func(prefix string) consumer.TxHandler[pgx.Tx] {
			return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				id := msg.EventID
				if original, ok := msg.Header(forward.DeadEventHeader); ok {
					id = string(original)
				}
				if _, err := tx.Exec(ctx, effectSQL, prefix+id); err != nil {
					return err
				}
				if prefix == "" && id == "e2" && !repaired.Load() {
					return consumer.Permanent(errBase)
				}
				return nil
			}
		}
		f.relay(b)
		f.consume(b, group, map[string]consumer.Topic{
			orders: {Consumer: "billing", Middleware: []consumer.Middleware{middleware.DeadLetter(store, both, nil)},
				Handler: middleware.Dedup(store, effect(""), nil)},
			dead: {Consumer: "undertaker", Handler: middleware.Dedup(store, effect("dead "), nil)},
		})
		b.Produce(t, produced(orders, "e1", "e2", "e3")...)
		eventually(t, "the dead letter has come to its topic, the others have taken effect", func() bool {
			return f.count("select count(*) from effect where event in ('e1', 'dead e2', 'e3')") == 3
		})
		eventually(t, "the relay has deleted what it sent", f.allSent)
		f.want(1, 4, 0)

		repaired.Store(true)
		report, err := forward.Redrive(t.Context(), store, table, events,
			&forward.RedriveConfig{RedriveConfig: deadletter.RedriveConfig{Filter: deadletter.Filter{Topic: orders}}})
		if want := (deadletter.Report{Found: 1, Redriven: 1}); err != nil || report != want {
			t.Fatalf("%+v, %v", report, err)
		}
		eventually(t, "the redriven message takes effect",
			func() bool { return f.count("select count(*) from effect where event = 'e2'") == 1 })

		b.Produce(t, produced(orders, "e2", "e4")...) // the original once more, and what comes after it
		eventually(t, "what comes after it takes effect",
			func() bool { return f.count("select count(*) from effect where event = 'e4'") == 1 })
		if n := f.count("select count(*) from effect"); n != 5 {
			t.Errorf("%d effects, want 5", n)
		}
		eventually(t, "the relay has deleted what it sent", f.allSent)
		f.want(0, 5, 0)
	})
}
