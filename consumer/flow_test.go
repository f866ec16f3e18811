package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A slow handler neither makes memory grow with the backlog nor holds up another partition of the same broker.
func TestBackPressureAndSiblings(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		for range 20 { // batches of 500, so that a fetch does not bring all at once
			var batch []*sarama.ProducerMessage
			for range 500 {
				batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: 0,
					Value: sarama.ByteEncoder(make([]byte, 2000))})
			}
			b.Produce(t, batch...)
		}
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Partition: 1})
		h := newBlocking(true)
		var s seen
		cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if msg.Partition == 0 {
				return h.Handle(ctx, msg)
			}
			return s.Handle(ctx, msg)
		}))
		cfg.Limits.PartitionMessages = 1000
		m := start(t, cfg)
		eventually(t, "the partition is paused", func() bool {
			p := m.Status().Partitions
			return len(p) == 2 && p[0].Paused
		})
		eventually(t, "the sibling is served", func() bool { return s.len() == 1 })
		for i := range 5 {
			b.Produce(t, &sarama.ProducerMessage{Topic: topic, Partition: 1})
			eventually(t, "the sibling is served", func() bool { return s.len() == 2+i })
		}
		if p := m.Status().Partitions[0]; p.Held > 4000 || p.Running != 1 {
			t.Errorf("%d messages are held and %d run, want a bounded number and 1", p.Held, p.Running)
		}
		close(h.release)
		eventually(t, "the backlog is worked off", func() bool { return h.len() == 10000 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 10000 {
			t.Errorf("committed %v", c)
		}
	})
}

// What was produced arrives byte for byte, and writing beyond a slice's end reaches nothing else.
func TestMessageContent(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		at := time.UnixMilli(1_700_000_000_123)
		b.Produce(t,
			&sarama.ProducerMessage{Topic: topic, Timestamp: at, Key: sarama.StringEncoder("key"),
				Value: sarama.StringEncoder("value"), Headers: []sarama.RecordHeader{
					{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("a"), Value: []byte("2")}, {Key: []byte(""), Value: nil},
				}},
			&sarama.ProducerMessage{Topic: topic},
			&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(""), Value: sarama.StringEncoder("")},
		)
		var s seen
		m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			_ = append(msg.Key, "overwritten"...)
			_ = append(msg.Value, "overwritten"...)
			for _, h := range msg.Headers {
				_ = append(h.Value, "overwritten"...)
			}
			return s.Handle(ctx, msg)
		})))
		eventually(t, "all are handled", func() bool { return s.len() == 3 })
		_ = m.stop()
		first, none, empty := s.all()[0], s.all()[1], s.all()[2]
		if string(first.Key) != "key" || string(first.Value) != "value" || !first.Timestamp.Equal(at) {
			t.Errorf("first: %q %q %v", first.Key, first.Value, first.Timestamp)
		}
		if got := fmt.Sprintf("%q", first.Headers); got != `[{"a" "1"} {"a" "2"} {"" ""}]` {
			t.Errorf("headers: %s", got)
		}
		if v, ok := first.Header("a"); !ok || !bytes.Equal(v, []byte("2")) {
			t.Errorf("Header(a) = %q, %v: the last one wins", v, ok)
		}
		if none.Key != nil || none.Value != nil || none.Headers != nil {
			t.Errorf("a record without key and value: %v %v %v", none.Key, none.Value, none.Headers)
		}
		if empty.Key == nil || empty.Value == nil {
			t.Errorf("an empty key or value became nil")
		}
	})
}

// A committed offset beyond the end of the log (a topic created again under the same name) does not stop commits.
func TestCommittedBeyondTheEnd(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 10)...)
		var s seen
		m := start(t, config(b, group, topic, &s))
		eventually(t, "the log is read", func() bool { return s.len() == 10 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		commit(t, b, group, topic, 100)
		m = start(t, config(b, group, topic, &s))
		eventually(t, "the log is read from its start", func() bool { return s.len() == 20 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 10 {
			t.Errorf("committed %v, want 10", c)
		}
	})
}

// commit sets the committed offset of partition 0, as another member of the group would.
func commit(t *testing.T, b *serverstest.Broker, group, topic string, offset int64) {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	client, err := sarama.NewClient(b.Addrs, c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	om, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		t.Fatal(err)
	}
	defer om.Close()
	pom, err := om.ManagePartition(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	pom.ResetOffset(offset, "") // goes back only
	pom.MarkOffset(offset, "")
	om.Commit()
	pom.AsyncClose()
	if c := b.Committed(t, group, topic); c[0] != offset {
		t.Fatalf("committed %v, want %d", c, offset)
	}
}
