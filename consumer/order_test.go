package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// ordered is config with an order and a number of workers.
func ordered(b *serverstest.Broker, group, topic string, h consumer.Handler, order consumer.Order,
	workers int) consumer.Config {
	cfg := config(b, group, topic, h)
	cfg.Topics[topic] = consumer.Topic{Handler: h, Order: order, Workers: workers}
	return cfg
}

// keyed makes n records on partition 0 whose keys are k0, k1, ... in turn.
func keyed(topic string, keys, n int) []*sarama.ProducerMessage {
	var msgs []*sarama.ProducerMessage
	for i := range n {
		msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("k", i%keys)),
			Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	return msgs
}

// load counts how many run at once, in all and per key.
type load struct {
	mu      sync.Mutex
	now     map[string]int
	all     int
	most    int
	mostKey int

	size int // if it is not 0: full is closed when so many run at once
	full chan struct{}
}

func (l *load) enter(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		l.now = map[string]int{}
	}
	l.now[key]++
	l.all++
	l.mostKey = max(l.mostKey, l.now[key])
	if l.all > l.most {
		if l.most = l.all; l.most == l.size {
			close(l.full)
		}
	}
}

func (l *load) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now[key]--
	l.all--
}

// Same key in order and one at a time, different keys side by side, and never more than Workers.
func TestKeyOrder(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, keyed(topic, 20, 400)...)
		var s seen
		l := load{full: make(chan struct{}), size: 8}
		m := start(t, ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			l.enter(string(msg.Key))
			defer l.leave(string(msg.Key))
			<-l.full // the first ones wait for each other
			time.Sleep(time.Millisecond)
			return s.Handle(ctx, msg)
		}), consumer.KeyOrder, 8))
		eventually(t, "all are handled", func() bool { return s.len() == 400 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if l.mostKey != 1 {
			t.Errorf("%d messages of one key ran at once", l.mostKey)
		}
		if l.most != 8 {
			t.Errorf("%d messages ran at once, want 8", l.most)
		}
		last := map[string]int64{}
		for _, msg := range s.all() {
			if before, ok := last[string(msg.Key)]; ok && msg.Offset <= before {
				t.Errorf("key %s: offset %d after %d", msg.Key, msg.Offset, before)
			}
			last[string(msg.Key)] = msg.Offset
		}
		if c := b.Committed(t, group, topic); c[0] != 400 {
			t.Errorf("committed %v", c)
		}
	})
}

// As many keys fail as there are workers: none of them holds a worker, all other keys go on, and no offset passes a
// failing message.
func TestFailingKeysHoldOnlyThemselves(t *testing.T) {
	t.Parallel()
	for _, order := range []consumer.Order{consumer.KeyOrder, consumer.Unordered} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Produce(t, keyed(topic, 20, 200)...)
			var s seen
			var healed atomic.Bool
			failing := func(msg *consumer.Message) bool { return msg.Offset >= 4 && msg.Offset < 8 } // the first of k4 to k7
			m := start(t, ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
				if failing(msg) && !healed.Load() {
					return consumer.RetryAfter(50*time.Millisecond, errHandler)
				}
				return s.Handle(ctx, msg)
			}), order, 4))
			want := 200 - 4
			if order == consumer.KeyOrder {
				want = 200 - 4*10
			}
			eventually(t, "the others are handled", func() bool { return s.len() == want })
			eventually(t, "the frontier is seen", func() bool {
				p := m.Status().Partitions[0]
				return p.Oldest == 4 && p.OldestAttempts > 1 && p.Next == 4 && p.Parked > 0 && p.Failing != nil &&
					errors.Is(p.LastError, errHandler)
			})
			if s.len() != want {
				t.Errorf("%d were handled, want %d", s.len(), want)
			}
			healed.Store(true)
			eventually(t, "all are handled", func() bool { return s.len() == 200 })
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			if c := b.Committed(t, group, topic); c[0] != 200 {
				t.Errorf("committed %v", c)
			}
		})
	}
}

// Messages without a key have no order in KeyOrder; all run side by side.
func TestKeylessRunSideBySide(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 8)
	h := newBlocking(true)
	m := start(t, ordered(b, group, topic, h, consumer.KeyOrder, 8))
	for range 8 {
		<-h.started // each starts while the others wait
	}
	close(h.release)
	eventually(t, "all are handled", func() bool { return h.len() == 8 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}

// Workers are shared by the partitions of a topic, in turn: a partition with much to do does not keep the others
// waiting.
func TestWorkersAreShared(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 2), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 500)...) // partition 0 only
	var s seen
	l := load{full: make(chan struct{}), size: 2}
	held, served := make(chan struct{}), make(chan struct{})
	m := start(t, ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		l.enter("")
		defer l.leave("")
		<-l.full // the first ones wait for each other
		switch {
		case msg.Partition == 1:
			close(served)
		case msg.Offset >= 60:
			<-served // for ever, if both workers stay with partition 0
		case msg.Offset >= 50:
			<-held
		}
		return s.Handle(ctx, msg)
	}), consumer.Unordered, 2))
	eventually(t, "some of partition 0 are handled", func() bool { return s.len() == 50 })
	b.Produce(t, &sarama.ProducerMessage{Topic: topic, Partition: 1})
	eventually(t, "the message of partition 1 waits for a worker", func() bool {
		p := m.Status().Partitions
		return len(p) == 2 && p[1].Held == 1
	})
	close(held)
	eventually(t, "all are handled", func() bool { return s.len() == 501 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if l.most != 2 {
		t.Errorf("%d ran at once, want 2", l.most)
	}
}

// One stuck key grows neither memory nor what a restart repeats without end.
func TestAheadIsBounded(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		for range 20 {
			b.Produce(t, keyed(topic, 10, 100)...)
		}
		var s seen
		var healed atomic.Bool
		cfg := ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if msg.Offset == 0 && !healed.Load() {
				return consumer.RetryAfter(20*time.Millisecond, errHandler)
			}
			return s.Handle(ctx, msg)
		}), consumer.Unordered, 4)
		cfg.Limits.Ahead = 200
		cfg.Sarama = func(c *sarama.Config) { c.Consumer.Fetch.Default = 4096 }
		var lines lockedBuffer
		cfg.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
		var paused, resumed atomic.Int32
		cfg.Hooks.Paused = func(string, int32) { paused.Add(1) }
		cfg.Hooks.Resumed = func(string, int32) { resumed.Add(1) }
		m := start(t, cfg)
		eventually(t, "the partition is paused and idle", func() bool {
			p := m.Status().Partitions
			return len(p) == 1 && p[0].Paused && p[0].Held == 1
		})
		if p := m.Status().Partitions[0]; p.PausedBy != consumer.LimitAhead || p.Oldest != 0 {
			t.Errorf("paused by %q, the oldest is %d", p.PausedBy, p.Oldest)
		}
		if n := s.len(); n >= 1999 {
			t.Errorf("%d messages were handled beyond the stuck one", n)
		}
		eventually(t, "the log names the message", func() bool { return strings.Contains(lines.String(), "Limits.Ahead") })
		healed.Store(true)
		eventually(t, "all are handled", func() bool { return s.len() == 2000 })
		eventually(t, "the partition is not paused", func() bool { return resumed.Load() == paused.Load() })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if paused.Load() == 0 || resumed.Load() != paused.Load() {
			t.Errorf("%d times paused and %d times resumed", paused.Load(), resumed.Load())
		}
		if text := lines.String(); strings.Count(text, "Limits.Ahead") != 1 ||
			!strings.Contains(text, "messaging.kafka.offset=0 ") || !strings.Contains(text, topic) {
			t.Errorf("the log does not name the message once:\n%s", text)
		}
	})
}

// What all partitions hold together is bounded, and none starves for it.
func TestTotalIsBounded(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 4), serverstest.Group(t)
	for range 10 {
		b.Produce(t, records(topic, 4, 50)...)
	}
	h := newBlocking(true)
	cfg := config(b, group, topic, h)
	cfg.Limits.Messages = 100
	cfg.Sarama = func(c *sarama.Config) { c.Consumer.Fetch.Default = 2048 }
	m := start(t, cfg)
	for range 4 {
		<-h.started // one of each partition runs
	}
	eventually(t, "all that hold messages are paused", func() bool {
		for _, p := range m.Status().Partitions {
			if !p.Paused {
				return false
			}
		}
		return true
	})
	close(h.release)
	eventually(t, "all are handled", func() bool { return h.len() == 2000 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	for p, offset := range b.Committed(t, group, topic) {
		if offset != 500 {
			t.Errorf("partition %d: committed %d", p, offset)
		}
	}
}

// Bytes are bounded like messages, per partition and in all.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]consumer.Limits{"of a partition": {PartitionBytes: 20_000},
		"of all": {Bytes: 20_000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 2), serverstest.Group(t)
			for range 40 { // four times what may be held, and what sarama has fetched ahead of it
				b.Produce(t, records(topic, 2, 20)...)
			}
			h := newBlocking(true)
			cfg := config(b, group, topic, h)
			cfg.Limits = limits
			cfg.Sarama = func(c *sarama.Config) { c.Consumer.Fetch.Default = 1024 }
			m := start(t, cfg)
			eventually(t, "both are paused", func() bool {
				p := m.Status().Partitions
				return len(p) == 2 && p[0].Paused && p[1].Paused
			})
			for _, p := range m.Status().Partitions {
				if p.Held == 800 {
					t.Errorf("partition %d holds all messages", p.Partition)
				}
			}
			close(h.release)
			eventually(t, "all are handled", func() bool { return h.len() == 1600 })
		})
	}
}

// lockedBuffer is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
