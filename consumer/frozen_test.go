package consumer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// frozen is a dialer to one of whose addresses connections are opened and left without an answer, as by a broker that
// stands still.
type frozen string

func (f frozen) Dial(network, addr string) (net.Conn, error) {
	if addr != string(f) {
		return net.Dial(network, addr)
	}
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	return client, nil
}

// One of three brokers stands still: each Consumer starts as if it were not there, whichever is asked first.
func TestStartBesideAFrozenBroker(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(3))
	topic := b.Topic(t, 1)
	leader := leaderOf(t, b, topic)
	for range 6 {
		group := serverstest.Group(t)
		for b.Addrs[b.Fake.CoordinatorFor(group)] == leader {
			group += "x"
		}
		idle := frozen(otherThan(b.Addrs, leader, b.Addrs[b.Fake.CoordinatorFor(group)]))
		c, err := New(Config{
			Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
			Sarama: func(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, idle },
			Topics: map[string]Topic{topic: {Handler: HandlerFunc(func(context.Context, *Message) error { return nil })}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- c.Run(ctx) }()
		soon(t, "it is ready", func() bool { return c.Ready() && len(c.Status().Partitions) == 1 })
		if took := time.Since(began); took > readTimeout-2*time.Second {
			t.Errorf("it was ready after %v", took)
		}
		cancel()
		if err := received(t, done); err != nil {
			t.Error(err)
		}
	}
}

func leaderOf(t *testing.T, b *serverstest.Broker, topic string) string {
	t.Helper()
	client, err := sarama.NewClient(b.Addrs, newSaramaConfig("g", &strategy{}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leader, err := client.Leader(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return leader.Addr()
}

func otherThan(addrs []string, not ...string) string {
	for _, addr := range addrs {
		if addr != not[0] && addr != not[1] {
			return addr
		}
	}
	panic("unreachable")
}
