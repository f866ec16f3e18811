package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// Abort ends the start too: "It may be called at any time", "it ends Run as the end of its ctx does".
func TestAbortDuringTheStart(t *testing.T) {
	t.Parallel()
	c, err := consumer.New(consumer.Config{Brokers: []string{"127.0.0.1:1"}, Group: "g", StartTimeout: time.Hour,
		Topics: map[string]consumer.Topic{"t": {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(context.Background()) }()
	eventually(t, "it starts", func() bool { return c.Status().Phase == consumer.Starting })
	c.Abort()
	if err := receive(t, done); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// A handler that never returns is subject to OnStuck after a rebalance too.
func TestStuckHandlerOutlivesItsClaim(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	started := make(chan struct{}, 10)
	h := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		started <- struct{}{}
		<-release
		return nil
	})
	cfg := config(b, group, topic, h)
	cfg.DrainTimeout = 100 * time.Millisecond
	cfg.Sarama = short
	cfg.Topics[topic] = consumer.Topic{Handler: h, Order: consumer.KeyOrder, Workers: 1, ProcessingLimit: 3 * time.Second}
	first := start(t, cfg)
	<-started
	// Another member comes and goes: two rebalances within the limit.
	var s seen
	second := start(t, config(b, group, topic, &s))
	eventually(t, "rebalanced", func() bool { return second.Status().Phase == consumer.Running })
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.done:
		if !errors.Is(first.err, consumer.ErrHandlersStuck) {
			t.Errorf("Run returned %v", first.err)
		}
	case <-time.After(time.Minute):
		t.Errorf("Run goes on although a handler has not returned for a minute, limit 3 s + 3 s; ready %v %+v", first.Ready(),
			first.Status())
	}
}

// A new group with FromNewest does not read the backlog because one request failed.
func TestFromNewestWhenOffsetsAreNotTold(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 5)
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Topics[topic] = consumer.Topic{Handler: &s, Start: consumer.FromNewest()}
	n := 0 // requests; kfake answers one at a time
	b.Fake.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		n++
		if n != 2 { // the first is sarama's own, the second the runner's
			return nil, nil, false //nolint:nilnil // kfake: answer it yourself
		}
		req := r.(*kmsg.OffsetFetchRequest)
		res := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		res.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		for _, rt := range req.Topics {
			tt := kmsg.NewOffsetFetchResponseTopic()
			tt.Topic = rt.Topic
			for _, p := range rt.Partitions {
				pp := kmsg.NewOffsetFetchResponseTopicPartition()
				pp.Partition, pp.Offset, pp.ErrorCode = p, -1, kerr.CoordinatorLoadInProgress.Code
				tt.Partitions = append(tt.Partitions, pp)
			}
			res.Topics = append(res.Topics, tt)
		}
		return res, nil, true
	})
	m := start(t, cfg)
	eventually(t, "ready", m.Ready)
	b.Produce(t, records(topic, 1, 1)...)
	eventually(t, "the new message is handled", func() bool { return s.len() > 0 })
	if first := s.all()[0].Offset; first != 5 {
		t.Errorf("FromNewest began at offset %d", first)
	}
	_ = m.stop()
}

// Ready is false when the group was lost, as the brokers are gone.
func TestReadyWithoutBrokers(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Sarama = short
	m := start(t, cfg)
	eventually(t, "ready", m.Ready)
	b.Fake.Close()
	eventually(t, "it is not", func() bool { return !m.Ready() })
	_ = m.stop()
}

// A hook that hangs does not keep Run from returning.
func TestHookThatHangs(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	var s seen
	cfg := config(b, group, topic, &s)
	release := make(chan struct{})
	cfg.Hooks = consumer.Hooks{Assigned: func(string, int32) { <-release }}
	m := start(t, cfg)
	eventually(t, "ready", m.Ready)
	stopped := make(chan struct{})
	go func() { _ = m.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("Run has not returned a minute after its ctx ended")
	}
	close(release)
	<-stopped
}

// failing is a handler that fails, and has the message come again, until it is healed.
type failing struct {
	seen
	delay  time.Duration
	only   func(msg *consumer.Message) bool // nil for all messages
	healed atomic.Bool
}

func (f *failing) Handle(ctx context.Context, msg *consumer.Message) error {
	if !f.healed.Load() && (f.only == nil || f.only(msg)) {
		return consumer.RetryAfter(f.delay, errHandler)
	}
	return f.seen.Handle(ctx, msg)
}

// A partition that is paused when it is taken away and comes back is read.
func TestPausedPartitionComesBack(t *testing.T) {
	t.Parallel()
	for _, r := range []consumer.Rebalance{consumer.Eager, consumer.Cooperative} {
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 40)
			s := &failing{delay: 200 * time.Millisecond}
			cfg := config(b, group, topic, s)
			cfg.Rebalance = r
			cfg.Limits.PartitionMessages = 5
			cfg.Sarama = short
			first := start(t, cfg)
			eventually(t, "paused", func() bool {
				p := first.Status().Partitions
				return len(p) == 2 && p[0].Paused && p[1].Paused
			})
			second := start(t, cfg)
			eventually(t, "shared", func() bool {
				return len(first.Status().Partitions) == 1 &&
					len(second.Status().Partitions) == 1
			})
			eventually(t, "paused again", func() bool {
				a, b := first.Status().Partitions, second.Status().Partitions
				return len(a) == 1 && len(b) == 1 && a[0].Paused && b[0].Paused
			})
			if err := second.stop(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "comes back", func() bool { return len(first.Status().Partitions) == 2 })
			s.healed.Store(true)
			b.Produce(t, records(topic, 2, 20)...)
			eventually(t, "all", func() bool { return s.len() >= 120 })
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
			c := b.Committed(t, group, topic)
			if c[0] != 60 || c[1] != 60 || s.len() != 120 {
				t.Errorf("committed %v, seen %d", c, s.len())
			}
		})
	}
}

// Records are deleted while the partition is paused.
func TestRecordsDeletedWhilePaused(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		for range 30 {
			b.Produce(t, records(topic, 1, 10)...)
		}
		s := &failing{delay: 200 * time.Millisecond}
		cfg := config(b, group, topic, s)
		cfg.Limits.PartitionMessages = 5
		cfg.Sarama = func(c *sarama.Config) { c.Consumer.Fetch.Default = 500; c.ChannelBufferSize = 2 }
		m := start(t, cfg)
		eventually(t, "paused", func() bool { p := m.Status().Partitions; return len(p) == 1 && p[0].Paused })
		admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteRecords(topic, map[int32]int64{0: 290}) })
		s.healed.Store(true)
		eventually(t, "the rest", func() bool { a := s.all(); return len(a) > 0 && a[len(a)-1].Offset == 299 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 300 {
			t.Errorf("committed %v", c)
		}
	})
}

// A parked message at a rebalance; later ones have finished (Unordered).
func TestParkedAtARebalance(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 10)
	s := &failing{delay: time.Millisecond, only: func(msg *consumer.Message) bool { return msg.Offset == 3 }}
	cfg := ordered(b, group, topic, s, consumer.Unordered, 0)
	cfg.Sarama = short
	m := start(t, cfg)
	eventually(t, "9", func() bool { return s.len() == 9 })
	b.Fake.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		res := r.ResponseKind().(*kmsg.HeartbeatResponse)
		res.ErrorCode = kerr.RebalanceInProgress.Code
		return res, nil, true
	})
	eventually(t, "again", func() bool { return s.len() >= 9+6 })
	if c := b.Committed(t, group, topic); c[0] != 3 {
		t.Errorf("committed %v", c)
	}
	s.healed.Store(true)
	eventually(t, "all", func() bool { return s.len() >= 16 })
	_ = m.stop()
	if c := b.Committed(t, group, topic); c[0] != 10 {
		t.Errorf("committed %v", c)
	}
}

// A partition that cannot be read is seen by the probe, and in Status.
func TestUnreadablePartitionIsNotReady(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 3)
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.StallTimeout = 500 * time.Millisecond
	m := start(t, cfg)
	eventually(t, "3", func() bool { return s.len() == 3 })
	b.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		req := r.(*kmsg.FetchRequest)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			tt := kmsg.NewFetchResponseTopic()
			tt.Topic, tt.TopicID = rt.Topic, rt.TopicID
			for _, p := range rt.Partitions {
				pp := kmsg.NewFetchResponseTopicPartition()
				pp.Partition, pp.ErrorCode, pp.HighWatermark = p.Partition, kerr.CorruptMessage.Code, 6
				tt.Partitions = append(tt.Partitions, pp)
			}
			res.Topics = append(res.Topics, tt)
		}
		return res, nil, true
	})
	b.Produce(t, records(topic, 1, 3)...)
	eventually(t, "the probe sees it",
		func() bool { return !m.Ready() && strings.Contains(m.Status().NotReady, "cannot be read") })
	if p := m.Status().Partitions[0]; p.FetchError == nil || p.Unread.IsZero() {
		t.Errorf("status: %+v", p)
	}
	_ = m.stop()
}
