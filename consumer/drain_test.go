package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// blocking is a handler that reports each start and waits until it is let go, or, if it obeys, until its context is
// done.
type blocking struct {
	seen
	started chan *consumer.Message
	release chan struct{}
	obeys   bool
}

func newBlocking(obeys bool) *blocking {
	return &blocking{started: make(chan *consumer.Message, 10000), release: make(chan struct{}), obeys: obeys}
}

func (h *blocking) Handle(ctx context.Context, msg *consumer.Message) error {
	h.started <- msg
	done := ctx.Done()
	if !h.obeys {
		done = nil
	}
	select {
	case <-h.release:
		return h.seen.Handle(ctx, msg)
	case <-done:
		return context.Cause(ctx)
	}
}

// What is in work when ctx ends may finish, and is committed; nothing else starts.
func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		b.Produce(t, records(topic, 2, 10)...)
		h := newBlocking(true)
		m := start(t, config(b, group, topic, h))
		<-h.started
		<-h.started // one message of each partition is in work
		m.cancel()
		eventually(t, "the phase is draining", func() bool { return m.Status().Phase == consumer.Draining })
		close(h.release)
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if h.len() != 2 || len(h.started) != 0 {
			t.Errorf("%d finished and %d more started, want 2 and 0", h.len(), len(h.started))
		}
		if c := b.Committed(t, group, topic); c[0] != 1 || c[1] != 1 {
			t.Errorf("committed %v, want 1 and 1", c)
		}
	})
}

// What has not finished when the drain is over is cancelled, not marked, and comes again.
func TestDrainTimeoutCancels(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 3)...)
		h := newBlocking(true)
		cfg := config(b, group, topic, h)
		cfg.DrainTimeout = 100 * time.Millisecond
		m := start(t, cfg)
		<-h.started
		if err := m.stop(); err != nil {
			t.Fatalf("Run returned %v: a cancelled handler is no error", err)
		}
		if c := b.Committed(t, group, topic); c[0] > 0 {
			t.Errorf("committed %v, want nothing", c)
		}
		var s seen
		m = start(t, config(b, group, topic, &s))
		eventually(t, "all come again", func() bool { return s.len() == 3 })
		if s.all()[0].Attempt != 1 {
			t.Errorf("attempt %d", s.all()[0].Attempt)
		}
		_ = m.stop()
	})
}

// A handler that ignores its context is named.
func TestStuckHandlersAreNamed(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 3)
	h := newBlocking(false)
	cfg := config(b, group, topic, h)
	cfg.DrainTimeout = 50 * time.Millisecond
	m := start(t, cfg)
	<-h.started
	err := m.stop()
	if !errors.Is(err, consumer.ErrHandlersStuck) || !strings.Contains(err.Error(), topic+"[0]@0") {
		t.Errorf("Run returned %v", err)
	}
	close(h.release)
	eventually(t, "the handler returns", func() bool { return h.len() == 1 })
	if c := b.Committed(t, group, topic); c[0] > 0 {
		t.Errorf("committed %v: the end of the handler came after the end of its claim", c)
	}
}

// The handlers' context does not end with Run's, and carries its values.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	result := make(chan error, 1)
	err := consumer.Run(ctx, config(b, group, topic,
		consumer.HandlerFunc(func(hctx context.Context, msg *consumer.Message) error {
			cancel()
			from, ok := consumer.MessageFrom(hctx)
			switch {
			case !ok || from != msg:
				result <- errors.New("MessageFrom returns another message")
			case hctx.Value(key{}) != "value":
				result <- errors.New("the values of Run's context are missing")
			default:
				result <- hctx.Err()
			}
			return nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// short makes a group that notices joins and leaves quickly.
func short(c *sarama.Config) {
	c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
}

// When another member joins, what is in work finishes and is committed before the partition is let go: nothing is
// handled twice, nothing is lost.
func TestRebalanceDrains(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 4), serverstest.Group(t)
		b.Produce(t, records(topic, 4, 50)...)
		var s seen
		slow := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			select {
			case <-time.After(5 * time.Millisecond):
				return s.Handle(ctx, msg)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		cfg := config(b, group, topic, slow)
		cfg.Sarama = short
		first := start(t, cfg)
		eventually(t, "some are handled", func() bool { return s.len() > 20 })
		second := start(t, cfg)
		eventually(t, "both hold partitions", func() bool {
			return len(first.Status().Partitions) == 2 && len(second.Status().Partitions) == 2
		})
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all are handled", func() bool { return s.len() >= 200 })
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, msg := range s.all() {
			counts[msg.EventID]++
		}
		if len(counts) != 200 || s.len() != 200 {
			t.Errorf("%d messages were handled %d times, want 200 and 200", len(counts), s.len())
		}
		for p, offset := range b.Committed(t, group, topic) {
			if offset != 50 {
				t.Errorf("partition %d: committed %d, want 50", p, offset)
			}
		}
	})
}

// A handler that outlasts the rebalance's budget is cancelled, so that the partition's new owner does not wait for it.
func TestRebalanceCancelsWhatOutlastsIt(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 3)...)
		h := newBlocking(true)
		cfg := config(b, group, topic, h)
		cfg.Sarama = func(c *sarama.Config) {
			short(c)
			c.Consumer.Group.Rebalance.Timeout = time.Second
		}
		first := start(t, cfg)
		<-h.started
		second := start(t, cfg)
		<-h.started // again: by whichever member owns the partition now
		close(h.release)
		eventually(t, "all are handled", func() bool { return h.len() == 3 })
		if err := errors.Join(first.stop(), second.stop()); err != nil {
			t.Error(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 3 {
			t.Errorf("committed %v, want 3", c)
		}
	})
}
