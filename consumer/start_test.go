package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
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

// slack is what a slow machine may take on top.
const slack = 10 * time.Second

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
	if d := time.Since(began); d > limit+slack/2 {
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
	cfg.StartTimeout = time.Second
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, cfg.Brokers[0], cfg.Brokers[1], "1s", "check Config.Brokers", "TLS or SASL")
}

// silent accepts connections and never answers. They are closed when the test ends.
func silent(t *testing.T) (addr string, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), accepted
}

func TestBrokerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	addr, accepted := silent(t)
	cfg := valid()
	cfg.Brokers = []string{addr}
	cfg.StartTimeout = time.Second
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, addr, "1s", "check Config.Brokers", "TLS or SASL")
	if accepted.Load() == 0 {
		t.Error("nobody tried to connect")
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

// lines is what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// withSASL is a configuration for a cluster that asks for PLAIN.
func withSASL(password string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLTypePlaintext
		c.Net.SASL.User, c.Net.SASL.Password = "billing", password
	}
}

func saslCluster(t *testing.T) *serverstest.Broker {
	return serverstest.InProcess(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "billing", "right"), kfake.SeedTopics(1, "orders"))
}

// refuseCredentials answers as a real broker does; the in-process one cuts the connection.
func refuseCredentials(b *serverstest.Broker) {
	b.Fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		res := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		res.ErrorCode = kerr.SaslAuthenticationFailed.Code
		message := "Authentication failed: Invalid username or password"
		res.ErrorMessage = &message
		return res, nil, true
	})
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	b := saslCluster(t)
	refuseCredentials(b)
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger = b.Addrs, withSASL("hunter2"), log.logger()
	err := startError(t, cfg, 0) // StartTimeout is 30 s
	says(t, err, b.Addrs[0], "refuse the credentials", "correct Net.SASL in Config.Sarama")
	if !errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
		t.Errorf("the cause is lost: %v", err)
	}
	if strings.Contains(err.Error()+log.String(), "hunter2") {
		t.Errorf("the password is told: %v\n%s", err, &log)
	}
}

// A broker that cuts the connection instead looks like any that cannot be reached.
func TestWrongPasswordWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := saslCluster(t)
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger, cfg.StartTimeout = b.Addrs, withSASL("hunter2"), log.logger(), time.Second
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, b.Addrs[0], "TLS or SASL (Config.Sarama)")
	if strings.Contains(err.Error()+log.String(), "hunter2") {
		t.Errorf("the password is told: %v\n%s", err, &log)
	}
}

func TestRightPassword(t *testing.T) {
	t.Parallel()
	b := saslCluster(t)
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger = b.Addrs, withSASL("right"), log.logger()
	m := start(t, cfg)
	eventually(t, "it runs", func() bool { return m.Status().Phase == consumer.Running })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "joined the group") || strings.Contains(log.String(), "password") {
		t.Errorf("logged: %s", &log)
	}
}

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
			says(t, err, `topics that do not exist: "`+there+`-a"`+hint+`, "`+there+`-b"`+hint+`: `, "create them first", "Config.Topics")
		}
	})
}

func TestTopicNameThatKafkaRefuses(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		cfg := config(b, serverstest.Group(t), "no such / topic", nop)
		says(t, startError(t, cfg, 5*time.Second), `"no such / topic"`, "correct the names")
	})
}

func TestForbiddenTopic(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	err := startError(t, config(b, serverstest.Group(t), topic, nop), 0)
	says(t, err, topic, "READ and DESCRIBE")
	if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// ctx that ends during the start ends Run soon, without an error.
func TestStopDuringTheStart(t *testing.T) {
	t.Parallel()
	silentAddr, _ := silent(t)
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
		"nobody listens":      {Brokers: []string{closedAddr(t)}, Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"nobody answers":      {Brokers: []string{silentAddr}, Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"a check waits":       {Brokers: b.Addrs, Topics: map[string]consumer.Topic{topic: {Handler: checking(waiting)}}},
		"a check comes again": {Brokers: b.Addrs, Topics: map[string]consumer.Topic{topic: {Handler: checking(asking)}}},
		"and a topic misses":  {Brokers: b.Addrs, Topics: map[string]consumer.Topic{"missing": {Handler: checking(waiting)}}},
	} {
		cfg.Group = serverstest.Group(t)
		m := start(t, cfg)
		<-started
		began := time.Now()
		if err := m.stop(); err != nil || time.Since(began) > slack/2 {
			t.Errorf("%s: Run returned %v, %v after the end of ctx", name, err, time.Since(began))
		}
		if s := m.Status(); s.Phase != consumer.Stopped || len(s.Partitions) > 0 {
			t.Errorf("%s: status %+v", name, s)
		}
	}
}

func TestContextThatIsDoneAlready(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 1)...)
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
