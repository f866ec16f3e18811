package consumer_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

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
