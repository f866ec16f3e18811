package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A handler that obeys is cancelled at the limit, with a cause that says why, and tried again.
func TestProcessingLimitCancels(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 2)
	var s seen
	var cause atomic.Value
	h := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Offset == 0 && msg.Attempt == 1 {
			<-ctx.Done()
			cause.Store(context.Cause(ctx))
			return ctx.Err()
		}
		return s.Handle(ctx, msg)
	})
	cfg := config(b, group, topic, h)
	cfg.Topics[topic] = consumer.Topic{Handler: h, ProcessingLimit: 100 * time.Millisecond}
	m := start(t, cfg)
	eventually(t, "all are handled", func() bool { return s.len() == 2 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if got, _ := cause.Load().(error); !errors.Is(got, consumer.ErrProcessingLimit) {
		t.Errorf("cause %v", got)
	}
	if s.all()[0].Attempt != 2 {
		t.Errorf("attempt %d", s.all()[0].Attempt)
	}
}

// A handler that never returns ends the Consumer, by name, and its message is not committed.
func TestStuckHandlerStopsTheConsumer(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 2)
	h := newBlocking(false)
	t.Cleanup(func() { close(h.release) })
	chain := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Partition == 0 {
			return h.Handle(ctx, msg)
		}
		return nil
	})
	cfg := config(b, group, topic, chain)
	cfg.DrainTimeout = 100 * time.Millisecond
	cfg.Topics[topic] = consumer.Topic{Handler: chain, ProcessingLimit: 100 * time.Millisecond}
	m := start(t, cfg)
	receive(t, m.done)
	if !errors.Is(m.err, consumer.ErrHandlersStuck) || !errors.Is(m.err, consumer.ErrProcessingLimit) ||
		!strings.Contains(m.err.Error(), topic+"[0]@0") {
		t.Errorf("Run returned %v", m.err)
	}
	if c := b.Committed(t, group, topic); c[0] > 0 || c[1] != 2 {
		t.Errorf("committed %v, want nothing and 2", c)
	}
}

// With LeaveGroup another member takes over, and this one joins again when its handler has returned.
func TestStuckHandlerLeavesTheGroup(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 3)...)
		h := newBlocking(false)
		cfg := config(b, group, topic, h)
		cfg.DrainTimeout = 100 * time.Millisecond
		cfg.Sarama = short
		cfg.Topics[topic] = consumer.Topic{Handler: h, ProcessingLimit: 100 * time.Millisecond, OnStuck: consumer.LeaveGroup}
		first := start(t, cfg)
		<-h.started
		eventually(t, "it is out of the group", func() bool {
			return first.Status().Phase == consumer.Left &&
				!first.Ready()
		})

		var s seen
		second := start(t, config(b, group, topic, &s))
		eventually(t, "the other member takes over", func() bool { return s.len() == 3 })
		close(h.release)
		eventually(t, "the first has joined again", func() bool { return first.Status().Phase == consumer.Running })
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		b.Produce(t, records(topic, 1, 1)...)
		eventually(t, "the first works again", func() bool { return h.len() == 2 })
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 4 {
			t.Errorf("committed %v, want 4", c)
		}
	})
}

// A static member, which stays in the group when it stops, leaves it too where its handlers are stuck: nobody else
// would get its partitions before the session time-out.
func TestStuckStaticMemberLeavesTheGroup(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 2), serverstest.Group(t)
	h := newBlocking(false)
	cfg := config(b, group, topic, h)
	cfg.DrainTimeout, cfg.InstanceID = 100*time.Millisecond, "this"
	cfg.Sarama = func(c *sarama.Config) {
		short(c)
		c.Consumer.Group.Session.Timeout = 5 * time.Minute
	}
	cfg.Topics[topic] = consumer.Topic{Handler: h, ProcessingLimit: 100 * time.Millisecond, OnStuck: consumer.LeaveGroup}
	var s seen
	other := config(b, group, topic, &s)
	other.Sarama, other.InstanceID = cfg.Sarama, "other"
	members := []*member{start(t, cfg), start(t, other)}
	eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
	b.Produce(t, records(topic, 2, 3)...)
	<-h.started
	eventually(t, "the other member takes over", func() bool { return s.len() == 6 })
	close(h.release)
}

// Ready follows the life of a Consumer, and a stall.
func TestReady(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	h := newBlocking(true)
	cfg := config(b, group, topic, h)
	cfg.StallTimeout = 200 * time.Millisecond
	created, err := consumer.New(cfg)
	if err != nil || created.Ready() {
		t.Errorf("ready before it has run: %v", err)
	}
	m := start(t, cfg)
	eventually(t, "it is ready", m.Ready)
	time.Sleep(2 * cfg.StallTimeout)
	if !m.Ready() {
		t.Error("an idle partition is a stall")
	}
	b.Produce(t, records(topic, 1, 1)...)
	eventually(t, "it stalls", func() bool { return !m.Ready() && strings.Contains(m.Status().NotReady, topic+"[0]") })
	close(h.release)
	eventually(t, "it is ready again", m.Ready)
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if m.Ready() {
		t.Error("ready after its end")
	}
}

// The hooks tell the life of a partition in order.
func TestHooks(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 3)...)
		var s seen
		events := make(chan string, 100)
		cfg := config(b, group, topic, &s)
		cfg.Hooks = consumer.Hooks{
			Assigned:   func(string, int32) { events <- "assigned" },
			Revoked:    func(string, int32, time.Duration) { events <- "revoked" },
			OutOfRange: func(string, int32, int64) { events <- "out of range" },
		}
		m := start(t, cfg)
		eventually(t, "all are handled", func() bool { return s.len() == 3 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		commit(t, b, group, topic, 100)
		m = start(t, cfg)
		eventually(t, "all are handled again", func() bool { return s.len() == 6 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		close(events)
		var got []string
		for e := range events {
			got = append(got, e)
		}
		if strings.Join(got, ", ") != "assigned, revoked, assigned, out of range, revoked" {
			t.Errorf("events: %v", got)
		}
	})
}
