package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// The lag of a partition that is paused goes on growing, and that of one that never had a message is 0.
func TestLagOfAPausedPartition(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		b.Produce(t, keyed(topic, 10, 20)...)
		cfg := ordered(b, group, topic, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			return consumer.RetryAfter(time.Hour, errHandler)
		}), consumer.Unordered, 4)
		cfg.Limits.PartitionMessages = 4
		m := start(t, cfg)
		eventually(t, "it is paused, and the other is empty", func() bool {
			p := m.Status().Partitions
			return len(p) == 2 && p[0].Paused && p[0].Lag == 20 && p[0].End == 20 && p[1].Lag == 0 && p[1].End == 0
		})
		for n := int64(40); n <= 60; n += 20 {
			b.Produce(t, keyed(topic, 10, 20)...)
			eventually(t, "its lag grows", func() bool {
				p := m.Status().Partitions[0]
				return p.Lag == n && p.End == n
			})
		}
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// An end of the log that the broker does not tell any more is unknown, and not what it was.
func TestLagThatIsNotTold(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, keyed(topic, 10, 20)...)
	cfg := ordered(b, group, topic, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		return consumer.RetryAfter(time.Hour, errHandler)
	}), consumer.Unordered, 4)
	cfg.Limits.PartitionMessages = 4
	m := start(t, cfg)
	eventually(t, "it is paused", func() bool {
		p := m.Status().Partitions
		return len(p) == 1 && p[0].Paused &&
			p[0].Lag == 20
	})
	denied := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	eventually(t, "its lag is not known", func() bool {
		p := m.Status().Partitions[0]
		return p.Lag == -1 && p.End == -1
	})
	denied.Remove()
	eventually(t, "it is known again", func() bool {
		p := m.Status().Partitions[0]
		return p.Lag == 20 && p.End == 20
	})
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}
