package relay_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
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

// securedBench is a bench on a cluster that asks for something, with the topic "orders".
func securedBench(t testing.TB, b *serverstest.Broker) *bench {
	t.Helper()
	f := tabletest.Open(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	return &bench{f, b, write, db, "orders"}
}

// With what the cluster asks for, all ways of the relay to it work: the client of the cluster, the greeting, the
// producers.
func TestSecuredCluster(t *testing.T) {
	t.Parallel()
	sasl := serverstest.WithSASL(serverstest.SASLPassword)
	for name, cluster := range map[string]func(t testing.TB) (*serverstest.Broker, func(*sarama.Config)){
		"SASL": func(t testing.TB) (*serverstest.Broker, func(*sarama.Config)) {
			return serverstest.SASL(t, "orders"), sasl
		},
		"TLS and SASL": func(t testing.TB) (*serverstest.Broker, func(*sarama.Config)) {
			b, trust := serverstest.TLS(t, "orders")
			return b, func(c *sarama.Config) { sasl(c); trust(c) }
		},
	} {
		for _, mode := range modes {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				broker, secure := cluster(t)
				b := securedBench(t, broker)
				var log lines
				cfg := b.config(mode)
				cfg.Sarama, cfg.Logger = secure, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				r := start(t, cfg)
				b.insert("1", "2", "3")
				eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
				list, err := outboxtest.Records(broker.Addrs, "orders", secure)
				must(t, err)
				if got, _ := outboxtest.FirstCopies(list); strings.Join(got["k"], " ") != "1 2 3" {
					t.Errorf("the topic has %v", got)
				}
				if open := strings.Count(log.String(), "in clear text"); open != map[string]int{"SASL": 1}[name] ||
					strings.Count(log.String(), "\n") != open {
					t.Errorf("logged: %s", &log)
				}
				if s := r.Status(); s.Errors != 0 {
					t.Errorf("%v, logged: %s", s.Error, &log)
				}
			})
		}
	}
}

// Without it the relay waits as for a Kafka that is away: no row is blamed, and the password is told to nobody.
func TestSecuredClusterRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster func(t testing.TB) *serverstest.Broker
		sarama  func(*sarama.Config)
		cause   error // if it is known
	}{
		"wrong password": {func(t testing.TB) *serverstest.Broker {
			b := serverstest.SASL(t, "orders")
			b.RefuseCredentials()
			return b
		}, serverstest.WithSASL("hunter2"), sarama.ErrSASLAuthenticationFailed},
		"wrong password without an answer": {func(t testing.TB) *serverstest.Broker { return serverstest.SASL(t, "orders") },
			serverstest.WithSASL("hunter2"), nil},
		"no SASL": {func(t testing.TB) *serverstest.Broker { return serverstest.SASL(t, "orders") },
			nil, nil},
		"an unknown certificate": {func(t testing.TB) *serverstest.Broker {
			b, _ := serverstest.TLS(t, "orders")
			return b
		}, func(c *sarama.Config) {
			serverstest.WithSASL("hunter2")(c)
			c.Net.TLS.Enable = true
		}, nil},
	} {
		for _, mode := range modes {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				b := securedBench(t, c.cluster(t))
				var log lines
				cfg := b.config(mode)
				cfg.Sarama, cfg.Logger = c.sarama, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				r := start(t, cfg)
				b.insert("1")
				eventually(t, "it fails again and again", func() bool { return r.Status().Errors > 2 })
				if err := r.Status().Error; c.cause != nil && !errors.Is(err, c.cause) {
					t.Errorf("the cause is lost: %v", err)
				}
				if text := r.Status().Error.Error() + log.String(); strings.Contains(text, "hunter2") {
					t.Errorf("the password is told: %s", text)
				}
				if b.rows("status = 'PENDING' and attempts = 0 and claims = 0") != 1 || r.Status().Published != 0 {
					t.Error("the row is not as it was")
				}
			})
		}
	}
}
