package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// member is a Consumer that runs in a test.
type member struct {
	*consumer.Consumer
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start runs a Consumer until the test ends, or stop is called.
func start(t *testing.T, cfg consumer.Config) *member {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = logger(t)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Consumer: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = c.Run(ctx)
	}()
	t.Cleanup(func() { _ = m.stop() }) // the test has looked at it, if it matters
	return m
}

// logger writes to the test's log, as long as the test runs.
func logger(t *testing.T) *slog.Logger {
	w := &logWriter{t: t}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, nil))
}

type logWriter struct {
	mu sync.Mutex
	t  *testing.T
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimSuffix(string(p), "\n"))
	}
	return len(p), nil
}

func (w *logWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = nil
}

func (m *member) stop() error {
	m.cancel()
	<-m.done
	return m.err
}

// log of what handlers saw.
type seen struct {
	mu   sync.Mutex
	msgs []*consumer.Message
}

func (s *seen) add(msg *consumer.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msg)
}

func (s *seen) all() []*consumer.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*consumer.Message(nil), s.msgs...)
}

func (s *seen) len() int { return len(s.all()) }

func (s *seen) Handle(_ context.Context, msg *consumer.Message) error {
	s.add(msg)
	return nil
}

// eventually waits for a condition; it fails the test after long enough for a slow machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func config(b *serverstest.Broker, group, topic string, h consumer.Handler) consumer.Config {
	return consumer.Config{Brokers: b.Addrs, Group: group, Topics: map[string]consumer.Topic{topic: {Handler: h}}}
}

// backlog starts brokers of the test's own, with a topic that has n records in each partition, for a group that has not
// run.
func backlog(t *testing.T, partitions int32, n int) (b *serverstest.Broker, topic, group string) {
	t.Helper()
	b = serverstest.InProcess(t)
	topic, group = b.Topic(t, partitions), serverstest.Group(t)
	b.Produce(t, records(topic, partitions, n)...)
	return b, topic, group
}

// records makes n records per partition.
func records(topic string, partitions int32, n int) []*sarama.ProducerMessage {
	var msgs []*sarama.ProducerMessage
	for p := range partitions {
		for i := range n {
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: topic, Partition: p, Value: sarama.StringEncoder(fmt.Sprintf("%d-%d", p, i)),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(fmt.Sprintf("%s-%d-%d", topic, p, i))}},
			})
		}
	}
	return msgs
}

func TestConsumesAllAndCommits(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 3), serverstest.Group(t)
		b.Produce(t, records(topic, 3, 100)...)
		var s seen
		m := start(t, config(b, group, topic, &s))
		eventually(t, "300 messages are handled", func() bool { return s.len() == 300 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		for p, offset := range b.Committed(t, group, topic) {
			if offset != 100 {
				t.Errorf("partition %d: committed %d, want 100", p, offset)
			}
		}
		for _, msg := range s.all() {
			if want := fmt.Sprintf("%s-%d-%d", topic, msg.Partition, msg.Offset); msg.EventID != want || msg.EventIDErr != nil {
				t.Fatalf("EventID = %q, %v, want %q", msg.EventID, msg.EventIDErr, want)
			}
			if msg.Group != group || msg.Consumer != group+"/"+topic || msg.Attempt != 1 || msg.TopicID == (consumer.TopicID{}) {
				t.Fatalf("facts: %+v", msg)
			}
		}

		// A new member goes on where this one stopped.
		b.Produce(t, records(topic, 3, 1)...)
		m = start(t, config(b, group, topic, &s))
		eventually(t, "3 more are handled", func() bool { return s.len() == 303 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if s.len() != 303 {
			t.Errorf("%d messages were handled, want 303: nothing is delivered again after a clean drain", s.len())
		}
	})
}
