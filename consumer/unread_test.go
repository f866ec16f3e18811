package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// unknownTopic makes the brokers answer that they do not know a topic.
func unknownTopic(b *serverstest.Broker, topic string) *kfake.FaultHandle {
	f := forever(kmsg.Metadata, kerr.UnknownTopicOrPartition)
	f.Topic = topic
	return b.Fake.Fault(f)
}

// rebalance makes the group rebalance.
func rebalance(b *serverstest.Broker, group string) {
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Group: group,
		Err: kerr.RebalanceInProgress})
}

// soon is how long a topic may stay unread after the brokers know it again: less than the client's look at all topics,
// each minute.
const soon = 25 * time.Second

// That a topic is unknown can be the answer of a moment: it is asked for again soon, and told meanwhile. So is a
// partition of which the brokers do not tell.
func TestTopicUnknownForAMoment(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail   func(t *testing.T, b *serverstest.Broker, topic string) (heal func())
		reason string
	}{
		"unknown": {func(_ *testing.T, b *serverstest.Broker, topic string) func() {
			return unknownTopic(b,
				topic).Remove
		}, "no broker knows it"},
		"no partition is told": {func(t *testing.T, b *serverstest.Broker, topic string) func() {
			return telling(t, b, topic,
				nil)
		}, "no partition"},
		"a partition is not told": {func(t *testing.T, b *serverstest.Broker, topic string) func() {
			return telling(t, b, topic, []int32{b.Fake.LeaderFor(topic, 0)})
		}, "1 of its 2 partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 3)
			var s seen
			m := start(t, config(b, group, topic, &s))
			eventually(t, "all are handled", func() bool { return s.len() == 6 })
			heal := test.fail(t, b, topic)
			rebalance(b, group)
			eventually(t, "Status tells", func() bool {
				u := m.Status().Unread
				return len(u) == 1 && u[0].Topic == topic && u[0].Partition == -1 && strings.Contains(u[0].Reason, test.reason)
			})
			if m.Ready() {
				t.Error("it says that it is ready")
			}
			eventually(t, "NotReady says so", func() bool {
				why := m.Status().NotReady
				return strings.Contains(why, topic) && strings.Contains(why, test.reason) || why == string(consumer.Left)
			})
			heal()
			healed := time.Now()
			b.Produce(t, records(topic, 2, 1)...)
			eventually(t, "all are handled", func() bool { return s.len() == 8 && m.Ready() && len(m.Status().Unread) == 0 })
			if took := time.Since(healed); took > soon {
				t.Errorf("it took %v", took)
			}
			must(t, m.stop())
		})
	}
}

// A Consumer whose only topic is deleted goes on, out of the group, and consumes it when it is there again.
func TestWithoutAnyTopic(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]sarama.KafkaVersion{"topics have ids": sarama.V3_6_0_0,
		"topics have none": sarama.V2_4_0_0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withoutAnyTopic(t, version)
		})
	}
}

// withoutAnyTopic deletes the topic of a Consumer and creates it again, with fewer partitions.
func withoutAnyTopic(t *testing.T, version sarama.KafkaVersion) {
	b, topic, group := backlog(t, 2, 3)
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Sarama = func(c *sarama.Config) {
		quick(c)
		c.Version = version
	}
	m := start(t, cfg)
	eventually(t, "all are handled", func() bool { return s.len() == 6 })
	admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteTopic(topic) })
	eventually(t, "it says that it has no topic", func() bool {
		why := m.Status().NotReady
		return m.Status().Phase == consumer.Left && strings.Contains(why, topic) &&
			strings.Contains(why, "no broker knows it")
	})
	eventually(t, "the topic is there again", func() bool { return create(t, b, topic, 1) == nil })
	eventually(t, "it takes records", func() bool { return tryProduce(b, records(topic, 1, 2)) == nil })
	eventually(t, "they are handled", func() bool { return s.len() >= 8 && m.Ready() })
	if u := m.Status().Unread; len(u) > 0 {
		t.Errorf("unread: %+v", u)
	}
	must(t, m.stop())
}

// At the start an unknown topic is not believed at once either: a new one is not known everywhere yet.
func TestTopicUnknownAtTheStart(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 3)
	fault := unknownTopic(b, topic)
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "it is asked for", func() bool { return fault.Hits() > 4 }) // more than the client itself asks
	fault.Remove()
	eventually(t, "all are handled", func() bool { return s.len() == 3 })
	must(t, m.stop())
}
