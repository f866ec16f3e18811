package consumer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

const (
	slack = 30 * time.Second // what a slow machine may take on top
	late  = 10 * time.Second // less than the client's own time-outs, which nothing waits for
	brief = 3 * time.Second  // a StartTimeout that ends soon, and in which brokers are reached on a slow machine too
)

// startError runs a Consumer that must not start, and returns its error, which must come within limit.
func startError(t *testing.T, cfg consumer.Config, limit time.Duration) error {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = logger(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+slack) // Run returns nil then
	defer cancel()
	result := make(chan error, 1)
	began := time.Now()
	go func() { result <- consumer.Run(ctx, cfg) }()
	err := receive(t, result)
	if err == nil || !strings.HasPrefix(err.Error(), "einmal: cannot start: ") {
		t.Fatalf("Run returned %v after %v", err, time.Since(began))
	}
	if d := time.Since(began); d > limit+late {
		t.Errorf("Run returned after %v, want %v", d, limit)
	}
	return err
}

func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// closedAddr is an address at which nobody listens.
func closedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Brokers = []string{closedAddr(t), closedAddr(t)}
	cfg.StartTimeout = 1500 * time.Millisecond // ends in the midst of the second try
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, cfg.Brokers[0], cfg.Brokers[1], "1.5s", "connection refused", "check Config.Brokers", "TLS or SASL")
}

// silent accepts connections and never answers. They are closed when the test ends.
func silent(t *testing.T) (addr string, accepted, open *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted, open = new(atomic.Int32), new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			accepted.Add(1)
			open.Add(1)
			go func() {
				defer open.Add(-1)
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), accepted, open
}

func TestBrokerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	addr, accepted, open := silent(t)
	cfg := valid()
	cfg.Brokers = []string{addr}
	cfg.StartTimeout = brief
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, addr, brief.String(), "check Config.Brokers", "TLS or SASL")
	if accepted.Load() == 0 {
		t.Error("nobody tried to connect")
	}
	eventually(t, "the connections are closed", func() bool { return open.Load() == 0 })
}

// freeze lets the cluster answer n requests for metadata, and no more.
func freeze(b *serverstest.Broker, n int32) (asked *atomic.Int32) {
	asked = new(atomic.Int32)
	b.Fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		if asked.Add(1) <= n {
			return nil, nil, false //nolint:nilnil // not handled
		}
		b.Fake.KeepControl()
		return nil, nil, true //nolint:nilnil // no answer
	})
	return asked
}

// A broker that freezes after it has answered once delays neither the error nor the end.
func TestBrokerThatFreezes(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	topic := b.Topic(t, 1)
	asked := freeze(b, 1)
	cfg := config(b, serverstest.Group(t), topic, nop)
	cfg.StartTimeout = brief
	says(t, startError(t, cfg, cfg.StartTimeout), topic, b.Addrs[0])
	if asked.Load() < 2 {
		t.Error("it froze before the topic was asked for")
	}
}

func TestStopWhileABrokerIsFrozen(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	topic := b.Topic(t, 1)
	asked := freeze(b, 1)
	m := start(t, config(b, serverstest.Group(t), topic, nop))
	eventually(t, "the topic is asked for", func() bool { return asked.Load() > 1 })
	m.cancel()
	receive(t, m.done)
	if m.err != nil {
		t.Errorf("Run returned %v", m.err)
	}
}

// Whichever request for metadata fails, a message has its topic's id: keys are made of it.
func TestTopicIDAfterAFailedRequest(t *testing.T) {
	t.Parallel()
	for cut := int32(1); cut <= 8; cut++ {
		b := serverstest.InProcess(t, kfake.NumBrokers(1))
		topic := b.Topic(t, 1)
		b.Produce(t, records(topic, 1, 1)...)
		var asked atomic.Int32
		b.Fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			if asked.Add(1) == cut {
				return nil, errors.New("cut"), true
			}
			return nil, nil, false //nolint:nilnil // not handled
		})
		var s seen
		m := start(t, config(b, serverstest.Group(t), topic, &s))
		eventually(t, "the message is handled", func() bool { return s.len() == 1 })
		if s.all()[0].TopicID == (consumer.TopicID{}) {
			t.Errorf("after request %d of %d failed, the topic's id is zero", cut, asked.Load())
		}
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	}
}

// A broker that comes up within StartTimeout is waited for.
func TestBrokerThatStartsLater(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	cfg := valid()
	cfg.Brokers = []string{l.Addr().String()}
	l.Close()
	var attempts atomic.Int32
	dialer := &net.Dialer{}
	cfg.Sarama = func(c *sarama.Config) {
		c.Net.Proxy.Enable = true
		c.Net.Proxy.Dialer = dialFunc(func(network, addr string) (net.Conn, error) {
			attempts.Add(1)
			return dialer.Dial(network, addr)
		})
	}
	m := start(t, cfg)
	eventually(t, "it tries again", func() bool { return attempts.Load() > 6 })
	if p := m.Status().Phase; p != consumer.Starting {
		t.Errorf("phase %v", p)
	}
	serverstest.InProcess(t, kfake.NumBrokers(1), kfake.Ports(port), kfake.SeedTopics(1, "orders"))
	eventually(t, "it runs", func() bool { return m.Status().Phase == consumer.Running })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

type dialFunc func(network, addr string) (net.Conn, error)

func (f dialFunc) Dial(network, addr string) (net.Conn, error) { return f(network, addr) }

func TestMissingTopics(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		there := b.Topic(t, 1)
		cfg := config(b, serverstest.Group(t), there, nop)
		cfg.Topics[there+"-b"] = consumer.Topic{Handler: nop}
		cfg.Topics[there+"-a"] = consumer.Topic{Handler: nop}
		for range 2 { // they are not created by asking for them
			err := startError(t, cfg, 5*time.Second)
			hint := ` (there is "` + there + `")`
			says(t, err, `topics that do not exist: "`+there+`-a"`+hint+`, "`+there+`-b"`+hint+`: `, "create them first",
				"Config.Topics")
		}
	})
}

func TestForbiddenTopic(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	cfg := config(b, serverstest.Group(t), topic, nop)
	cfg.Topics["zzz-missing"] = consumer.Topic{Handler: nop}
	err := startError(t, cfg, time.Second)
	says(t, err, topic, "READ and DESCRIBE", `topics that do not exist: "zzz-missing"`)
	if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// ctx that ends during the start ends Run soon, without an error.
func TestStopDuringTheStart(t *testing.T) {
	t.Parallel()
	silentAddr, _, _ := silent(t)
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	started := make(chan struct{}, 10)
	waiting := func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	asking := func(context.Context) error {
		started <- struct{}{}
		return consumer.RetryAfter(time.Hour, errTable)
	}
	for name, cfg := range map[string]consumer.Config{
		"nobody listens": {Brokers: []string{closedAddr(t)},
			Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"nobody answers": {Brokers: []string{silentAddr},
			Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"a check waits":       {Brokers: b.Addrs, Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"a check comes again": {Brokers: b.Addrs, Topics: map[string]consumer.Topic{topic: {Handler: checking(asking)}}},
		"and a topic misses":  {Brokers: b.Addrs, Topics: map[string]consumer.Topic{"missing": {Handler: checking(waiting)}}},
	} {
		cfg.Group = serverstest.Group(t)
		m := start(t, cfg)
		<-started
		began := time.Now()
		if err := m.stop(); err != nil || time.Since(began) > late {
			t.Errorf("%s: Run returned %v, %v after the end of ctx", name, err, time.Since(began))
		}
		if s := m.Status(); s.Phase != consumer.Stopped || len(s.Partitions) > 0 {
			t.Errorf("%s: status %+v", name, s)
		}
	}
}

func TestContextThatIsDoneAlready(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	var s seen
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := consumer.Run(ctx, config(b, group, topic, &s)); err != nil || s.len() > 0 {
		t.Errorf("Run returned %v, %d messages were handled", err, s.len())
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Produce(t, records(topic, 1, 1)...)
	var s seen
	m := start(t, config(b, serverstest.Group(t), topic, &s))
	eventually(t, "it runs", func() bool { return m.Status().Phase == consumer.Running })
	if err := m.Run(t.Context()); !errors.Is(err, consumer.ErrRunTwice) {
		t.Errorf("the second Run returned %v", err)
	}
	eventually(t, "the first goes on", func() bool { return s.len() == 1 })
	if p := m.Status().Phase; p != consumer.Running {
		t.Errorf("the second Run changed the phase to %v", p)
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	if err := m.Run(t.Context()); !errors.Is(err, consumer.ErrRunTwice) {
		t.Errorf("Run after the end returned %v", err)
	}
	if p := m.Status().Phase; p != consumer.Stopped {
		t.Errorf("Run after the end changed the phase to %v", p)
	}
}

// Of many calls at the same time, one runs.
func TestRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Brokers = []string{closedAddr(t)}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 8)
	for range cap(results) {
		go func() { results <- c.Run(ctx) }()
	}
	var refused []error
	for range cap(results) - 1 {
		refused = append(refused, <-results)
	}
	cancel()
	if err := <-results; err != nil {
		t.Errorf("the one that ran returned %v", err)
	}
	if slices.ContainsFunc(refused, func(err error) bool { return !errors.Is(err, consumer.ErrRunTwice) }) {
		t.Errorf("the others returned %v", refused)
	}
}
