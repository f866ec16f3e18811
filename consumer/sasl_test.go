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

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	b := serverstest.SASL(t, "orders")
	b.RefuseCredentials()
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger = b.Addrs, serverstest.WithSASL("hunter2"), log.logger()
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
	b := serverstest.SASL(t, "orders")
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger, cfg.StartTimeout = b.Addrs, serverstest.WithSASL("hunter2"), log.logger(),
		time.Second
	err := startError(t, cfg, cfg.StartTimeout)
	says(t, err, b.Addrs[0], "TLS or SASL (Config.Sarama)")
	if strings.Contains(err.Error()+log.String(), "hunter2") {
		t.Errorf("the password is told: %v\n%s", err, &log)
	}
}

func TestRightPassword(t *testing.T) {
	t.Parallel()
	b := serverstest.SASL(t, "orders")
	var log lines
	cfg := valid()
	cfg.Brokers, cfg.Sarama, cfg.Logger = b.Addrs, serverstest.WithSASL(serverstest.SASLPassword), log.logger()
	m := start(t, cfg)
	eventually(t, "it runs", func() bool { return m.Status().Phase == consumer.Running })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "joined the group") || strings.Count(log.String(), "password") != 1 ||
		!strings.Contains(log.String(), "in clear text") {
		t.Errorf("logged: %s", &log)
	}
}
