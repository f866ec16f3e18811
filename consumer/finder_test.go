package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// dialing is a dialer of a func.
type dialing func(network, addr string) (net.Conn, error)

func (d dialing) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

func (d dialing) install(c *sarama.Config) {
	often(c)
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, d
}

// logBuffer is what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) says(texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range texts {
		if !strings.Contains(l.text.String(), text) {
			return false
		}
	}
	return true
}

// runs starts a Consumer, which goes on until the test ends.
func runs(t *testing.T, cfg Config) *Consumer {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := received(t, done); err != nil {
			t.Error(err)
		}
	})
	return c
}

var ignore = HandlerFunc(func(context.Context, *Message) error { return nil })

// Whatever version of Kafka the client is pinned to, it joins: each question has the version that such a broker knows.
func TestPinnedVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []sarama.KafkaVersion{
		sarama.V0_11_0_0, sarama.V1_0_0_0, sarama.V1_1_0_0, sarama.V2_0_0_0, sarama.V2_3_0_0, sarama.V2_8_0_0,
		sarama.V3_9_0_0, sarama.V4_0_0_0,
	} {
		t.Run(version.String(), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t, kfake.NumBrokers(1))
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Produce(t, &sarama.ProducerMessage{Topic: topic})
			runs(t, Config{
				Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
				Topics: map[string]Topic{topic: {Handler: ignore}},
				Sarama: func(c *sarama.Config) { often(c); c.Version = version },
			})
			soon(t, "it commits", func() bool { return b.Committed(t, group, topic)[0] == 1 })
		})
	}
}

// countedConn counts its end.
type countedConn struct {
	net.Conn

	open *atomic.Int32
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// Twelve brokers know no coordinator for as long as the test looks: they are asked over connections that are kept, less
// and less often.
func TestWithoutACoordinatorNoStorm(t *testing.T) {
	t.Parallel()
	const nodes = 12
	b := serverstest.InProcess(t, kfake.NumBrokers(nodes))
	asked := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, TopLevel: true,
		Err: kerr.CoordinatorNotAvailable, Count: -1})
	topic := b.Topic(t, 1)
	var opened, open atomic.Int32
	count := dialing(func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err != nil {
			return nil, err
		}
		opened.Add(1)
		open.Add(1)
		return &countedConn{Conn: conn, open: &open}, nil
	})
	var log logBuffer
	runs(t, Config{
		Brokers: b.Addrs, Group: serverstest.Group(t), Topics: map[string]Topic{topic: {Handler: ignore}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Sarama: count.install,
	})
	soon(t, "all are asked", func() bool { return asked.Hits() > 3*nodes })
	soon(t, "it says so", func() bool {
		return log.says("the coordinator of the group is not reached", "oordinator is not available")
	})
	before, questions, began := opened.Load(), asked.Hits(), time.Now()
	time.Sleep(20 * time.Second)            // it is a matter of how often
	if n := opened.Load() - before; n > 6 { // a busy machine ends some that answer late; a storm opens dozens
		t.Errorf("%d connections in 20 s", n)
	}
	// A broker gets three: a greeting, which ends with its answer; the client's, when that asks this one of them for
	// metadata; and one for the question, which must not wait behind others. The last two are kept.
	if n := opened.Load(); n > 3*nodes+2 {
		t.Errorf("%d connections to %d brokers", n, nodes)
	}
	if n := open.Load(); n > 2*nodes+2 {
		t.Errorf("%d connections to %d brokers are kept", n, nodes)
	}
	if rate := float64(asked.Hits()-questions) / nodes / time.Since(began).Seconds(); rate > 1 {
		t.Errorf("each broker was asked %.1f times a second", rate)
	}
}

// A coordinator that cannot be connected to is named in the log, with why.
func TestWhyThereIsNoCoordinator(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
	}{
		{"DNS", &net.DNSError{Err: "no such host", Name: "kafka-1.internal", IsNotFound: true}},
		{"refused", errors.New("connect: connection refused")},
		{"TLS", errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			coordinator := b.Addrs[b.Fake.CoordinatorFor(group)]
			var log logBuffer
			fails := dialing(func(network, addr string) (net.Conn, error) {
				if addr == coordinator && log.says("the start is done") { // the start needs all brokers
					return nil, test.err
				}
				return net.Dial(network, addr)
			})
			runs(t, Config{
				Brokers: b.Addrs, Group: group, Topics: map[string]Topic{topic: {Handler: ignore}},
				Logger: slog.New(slog.NewTextHandler(&log, nil)), Sarama: fails.install,
			})
			soon(t, "the log says why", func() bool {
				return log.says("the coordinator of the group is not reached", coordinator, fmt.Sprint(test.err))
			})
			soon(t, "so does the join that fails",
				func() bool { return log.says("joining or leaving the group failed", "coordinator=") })
		})
	}
}
