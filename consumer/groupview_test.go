package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// client returns one of Kafka's, as an operator's tool has it.
func client(t *testing.T, b *serverstest.Broker) sarama.Client {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_6_0_0
	c, err := sarama.NewClient(b.Addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// groupLook looks at a group.
type groupLook struct {
	*testing.T

	client sarama.Client
	name   string
	*consumer.Group
}

func (l *groupLook) look() bool {
	l.Helper()
	var err error
	l.Group, err = consumer.DescribeGroup(l.Context(), l.client, l.name)
	if err != nil && !errors.Is(err, consumer.ErrNoGroup) {
		l.Fatal(err)
	}
	return err == nil
}

// An offset that the coordinator cannot tell is not one that nobody has committed.
func TestOffsetThatIsNotToldOfAGroup(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 1)
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "all is committed", func() bool { c := b.Committed(t, group, topic); return c[0] == 1 && c[1] == 1 })
	must(t, m.stop())
	var told atomic.Bool
	b.Fake.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if told.Load() {
			return nil, nil, false //nolint:nilnil // kfake: answered by the broker
		}
		return unstableOffset(req, topic), nil, true
	})
	if _, err := consumer.DescribeGroup(t.Context(), client(t, b), group); !errors.Is(err,
		sarama.ErrUnstableOffsetCommit) || !strings.Contains(err.Error(), topic+"[1]") {
		t.Errorf("%v", err)
	}
	told.Store(true)
	g := &groupLook{T: t, client: client(t, b), name: group}
	if !g.look() || len(g.Partitions) != 2 || g.Partitions[0].Committed != 1 || g.Partitions[1].Committed != 1 {
		t.Errorf("%+v", g.Group)
	}
}

// unstableOffset is the answer for all partitions of a group of which the coordinator cannot tell one.
func unstableOffset(req kmsg.Request, topic string) kmsg.Response {
	res := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if asked := req.(*kmsg.OffsetFetchRequest); len(asked.Groups) == 0 {
		p := kmsg.NewOffsetFetchResponseTopicPartition()
		p.Partition, p.Offset, p.ErrorCode = 1, -1, kerr.UnstableOffsetCommit.Code
		res.Topics = []kmsg.OffsetFetchResponseTopic{{Topic: topic, Partitions: []kmsg.OffsetFetchResponseTopicPartition{p}}}
	} else {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.ErrorCode = 1, -1, kerr.UnstableOffsetCommit.Code
		res.Groups = []kmsg.OffsetFetchResponseGroup{{Group: asked.Groups[0].Group,
			Topics: []kmsg.OffsetFetchResponseGroupTopic{
				{Topic: topic, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{p}},
			}}}
	}
	return res
}

// The brokers know members, offsets, lag and what is stuck, while the group runs and after all its processes have gone.
func TestDescribeGroup(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 3), serverstest.Group(t)
		b.Produce(t, records(topic, 2, 10)...)
		g := &groupLook{T: t, client: client(t, b), name: group}
		if _, err := consumer.DescribeGroup(t.Context(), g.client, group); !errors.Is(err, consumer.ErrNoGroup) ||
			!strings.Contains(err.Error(), group) {
			t.Fatalf("before it is there: %v", err)
		}
		m := start(t, config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			if msg.Partition == 1 && msg.Offset == 4 {
				return errHandler
			}
			return nil
		})))
		eventually(t, "it shows what is done and what is stuck", func() bool {
			return g.look() && g.State == "Stable" && len(g.Partitions) == 3 && g.Partitions[0].Committed == 10 &&
				g.Partitions[1].Committed == 4 &&
				len(g.Partitions[1].Open) == 1 && g.Partitions[1].Open[0].Attempts > 0
		})
		g.checkMember(topic)
		g.checkCommitTimes(b.Fake == nil)

		must(t, m.stop())
		b.Produce(t, records(topic, 2, 10)...)
		eventually(t, "nobody is left", func() bool { return g.look() && len(g.Members) == 0 })
		if sum, _ := g.Lag(); sum != 26 || len(g.Partitions) != 3 || g.Partitions[1].Member != "" ||
			len(g.Partitions[1].Open) == 0 {
			t.Errorf("%+v", g.Group)
		}
	})
}

// checkMember checks the group of one member while it runs.
func (l *groupLook) checkMember(topic string) {
	l.Helper()
	if len(l.Members) != 1 || l.Members[0].Host == "" || l.Members[0].ClientID == "" ||
		len(l.Members[0].Partitions) != 3 || l.Strategy == "" || l.Coordinator == "" {
		l.Errorf("%+v", l.Group)
	}
	for i, want := range []struct{ end, lag int64 }{{10, 0}, {10, 6}, {0, 0}} {
		p := &l.Partitions[i]
		if p.Topic != topic || p.Partition != int32(i) || p.Member != l.Members[0].ID || p.End != want.end ||
			p.Lag() != want.lag || p.OutOfRange() || p.Err != nil {
			l.Errorf("%+v, want %+v", *p, want)
		}
	}
	if sum, unknown := l.Lag(); sum != 6 || unknown != 0 {
		l.Errorf("lag %d, unknown %d", sum, unknown)
	}
	if open := l.Partitions[1].Open[0]; open.Offset != 4 || open.Fetched.IsZero() || open.First.IsZero() {
		l.Errorf("%+v", open)
	}
}

// checkCommitTimes: a broker that keeps offsets in a topic tells when they were committed, and for another the reason
// is told.
func (l *groupLook) checkCommitTimes(told bool) {
	l.Helper()
	at := l.Partitions[0].CommittedAt
	switch age := time.Since(at); {
	case told && (age < -time.Minute || age > 10*time.Minute || l.CommitTimesError != nil): // by the broker's clock
		l.Errorf("committed at %v: %v", at, l.CommitTimesError)
	case !told && (l.CommitTimesError == nil || !at.IsZero()):
		l.Error("a broker without the topic tells when offsets were committed")
	}
}

// Large groups are shown within 2 s.
func TestDescribeALargeGroup(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		const partitions, members = 200, 50
		topic, group := b.Topic(t, partitions), serverstest.Group(t)
		joinMany(t, b, group, topic, members)
		c := client(t, b)
		eventually(t, "all are there", func() bool {
			began := time.Now()
			g, err := consumer.DescribeGroup(t.Context(), c, group)
			took := time.Since(began)
			if errors.Is(err, consumer.ErrNoGroup) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			owned := 0
			for _, p := range g.Partitions {
				if p.Member != "" && p.End == 0 && p.Lag() == 0 {
					owned++
				}
			}
			if g.State != "Stable" || len(g.Members) != members || owned != partitions {
				return false
			}
			t.Logf("%d members with %d partitions in %v", len(g.Members), owned, took)
			return took <= 2*time.Second // soon, as far as a busy machine lets it
		})
	})
}

// joinMany makes members that do nothing.
func joinMany(t *testing.T, b *serverstest.Broker, group, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for i := range n {
		conf := sarama.NewConfig()
		conf.Version, conf.ClientID = sarama.V3_6_0_0, fmt.Sprintf("client-%d", i)
		conf.Consumer.Group.Rebalance.Timeout = 10 * time.Second
		g, err := sarama.NewConsumerGroup(b.Addrs, group, conf)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for ctx.Err() == nil {
				_ = g.Consume(ctx, []string{topic}, idle{})
			}
			_ = g.Close()
		})
	}
	t.Cleanup(func() { cancel(); done.Wait() })
}

// idle is a sarama.ConsumerGroupHandler.
type idle struct{}

func (idle) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (idle) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (idle) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}
