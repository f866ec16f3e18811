package consumer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// transactional is a producer of transactions.
func transactional(t *testing.T, b *serverstest.Broker, id string) sarama.SyncProducer {
	t.Helper()
	c := sarama.NewConfig()
	c.Version, c.Producer.Return.Successes, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.V3_6_0_0, true, true, 1
	c.Producer.RequiredAcks, c.Producer.Transaction.ID = sarama.WaitForAll, id
	c.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewSyncProducer(b.Addrs, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// begin sends values to partition 0 in a transaction that stays open.
func begin(t *testing.T, p sarama.SyncProducer, topic string, values ...string) {
	t.Helper()
	if err := p.BeginTxn(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func textOf(s *seen) string {
	var got []string
	for _, msg := range s.all() {
		got = append(got, fmt.Sprintf("%d:%s", msg.Offset, msg.Value))
	}
	return fmt.Sprint(got)
}

// What a producer has aborted takes no effect, unless the user wants it. Markers behind the last message are no lag:
// the position passes them, and so does the committed offset.
func TestTransactions(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic := b.Topic(t, 1)
		p := transactional(t, b, topic)
		begin(t, p, topic, "c0", "c1")
		must(t, p.CommitTxn())
		begin(t, p, topic, "a2", "a3")
		must(t, p.AbortTxn())
		begin(t, p, topic, "c4", "c5")
		must(t, p.CommitTxn())
		begin(t, p, topic, "a6")
		must(t, p.AbortTxn())
		for _, test := range []struct {
			isolation sarama.IsolationLevel
			want      string
		}{ // 2, 5, 8 and 10 are markers
			{sarama.ReadCommitted, "[0:c0 1:c1 6:c4 7:c5]"},
			{sarama.ReadUncommitted, "[0:c0 1:c1 3:a2 4:a3 6:c4 7:c5 9:a6]"},
		} {
			t.Run(fmt.Sprint(test.isolation), func(t *testing.T) {
				t.Parallel()
				var s seen
				group := serverstest.Group(t)
				cfg := config(b, group, topic, &s)
				if test.isolation == sarama.ReadUncommitted {
					cfg.Sarama = func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadUncommitted }
				}
				m := start(t, cfg)
				eventually(t, "the position passes the last marker", func() bool { return b.Committed(t, group, topic)[0] == 11 })
				if got := textOf(&s); got != test.want {
					t.Errorf("handled %v, want %v", got, test.want)
				}
				if p := partition(t, m, topic); p.Lag != 0 || p.Next != 11 || !p.OpenTransaction.IsZero() {
					t.Errorf("%+v", p)
				}
				must(t, m.stop())
			})
		}
	})
}

// A group that starts before an aborted transaction with nothing behind it passes it, and goes on with what comes.
func TestMarkerAtTheStart(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 1)...)
		var s seen
		cfg := config(b, group, topic, &s)
		m := start(t, cfg)
		eventually(t, "it is handled", func() bool { return s.len() == 1 })
		must(t, m.stop())
		p := transactional(t, b, topic)
		begin(t, p, topic, "a1")
		must(t, p.AbortTxn())
		m = start(t, cfg)
		eventually(t, "the position passes the marker", func() bool { return b.Committed(t, group, topic)[0] == 3 })
		if p := partition(t, m, topic); p.Lag != 0 {
			t.Errorf("%+v", p)
		}
		b.Produce(t, records(topic, 1, 1)...)
		eventually(t, "what follows is handled", func() bool { return s.len() == 2 && b.Committed(t, group, topic)[0] == 4 })
		must(t, m.stop())
	})
}

// While a transaction is open, nothing behind its beginning is handled, and Status says so. A group that begins at the
// newest message begins before it: what it commits later is new.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 2)...)
		p := transactional(t, b, topic)
		begin(t, p, topic, "t2", "t3")
		b.Produce(t, records(topic, 1, 1)...) // 4
		var s, late seen
		m := start(t, config(b, group, topic, &s))
		cfg := config(b, serverstest.Group(t), topic, &late)
		newest := start(t, editTopic(cfg, topic, func(tp *consumer.Topic) { tp.Start = consumer.FromNewest() }))
		for _, m := range []*member{m, newest} {
			eventually(t, "Status tells", func() bool {
				ps := m.Status().Partitions
				return len(ps) == 1 && !ps[0].OpenTransaction.IsZero() && time.Since(ps[0].OpenTransaction) < time.Minute
			})
		}
		if s.len() != 2 || late.len() != 0 || !m.Ready() {
			t.Errorf("handled %v and %v, ready %v", textOf(&s), textOf(&late), m.Ready())
		}
		if c := b.Committed(t, group, topic)[0]; c != 2 {
			t.Errorf("committed %d, want 2: the beginning of the transaction", c)
		}
		must(t, p.CommitTxn())
		eventually(t, "all are handled", func() bool { return s.len() == 5 && late.len() == 3 })
		for _, m := range []*member{m, newest} {
			eventually(t, "Status tells no more, and nothing is left", func() bool {
				p := partition(t, m, topic)
				return p.OpenTransaction.IsZero() && p.Lag == 0
			})
			must(t, m.stop())
		}
	})
}
