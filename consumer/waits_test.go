package consumer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A start that takes long says what it waits for, and why, also when it is ended from outside.
func TestStartSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	silentAddr, _, _ := silent(t)
	down := func(context.Context) error { return consumer.RetryAfter(0, errors.New("the database does not answer")) }
	for name, test := range map[string]struct {
		brokers []string
		check   func(context.Context) error
		says    []string
		stopped string // what the line about the stop has
	}{
		"brokers refuse": {[]string{closedAddr(t)}, nil, []string{"for=brokers", "connection refused", "limit_seconds=30"},
			"waited_for.brokers="},
		"brokers silent": {[]string{silentAddr}, nil, []string{"for=brokers", silentAddr, "answer"}, "waited_for.brokers="},
		"database": {b.Addrs, down, []string{"the chain of topic", topic, "the database does not answer"},
			"the database does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			cfg := config(b, serverstest.Group(t), topic, nop)
			cfg.Brokers, cfg.Logger = test.brokers, log.logger()
			if test.check != nil {
				cfg.Topics[topic] = consumer.Topic{Handler: checking(test.check)}
			}
			m := start(t, cfg)
			says := func(text string, wants ...string) bool {
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, text) {
						for _, want := range wants {
							if !strings.Contains(line, want) {
								t.Errorf("%q does not say %q", line, want)
							}
						}
						return true
					}
				}
				return false
			}
			eventually(t, "it says what it waits for", func() bool { return says("the start waits", test.says...) })
			if err := m.stop(); err != nil {
				t.Error(err)
			}
			if strings.Contains(log.String(), "context canceled") {
				t.Errorf("the stop is told as an answer of what was waited for:\n%s", log.String())
			}
			if !says("the start was stopped before it was done", "by=\"the end of the context of Run\"", test.stopped) {
				t.Errorf("nothing is said at the end:\n%s", log.String())
			}
		})
	}
}

// A check that the stop has cut short has found nothing: its answer is not told as the reason of a wait.
func TestStopIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	var log lines
	asked := make(chan struct{})
	var once sync.Once
	cfg := config(b, serverstest.Group(t), topic, nop)
	cfg.Logger = log.logger()
	cfg.Topics[topic] = consumer.Topic{Handler: checking(func(ctx context.Context) error {
		once.Do(func() { close(asked) })
		<-ctx.Done()
		return consumer.RetryAfter(0, fmt.Errorf("the database cannot be reached: %w", ctx.Err()))
	})}
	m := start(t, cfg)
	<-asked
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "the start was stopped before it was done") ||
		strings.Contains(text, "cannot be reached") {
		t.Errorf("it says\n%s", text)
	}
}

// What waiting does not cure is told at once, with what to do.
func TestIncurableErrorsEndTheStart(t *testing.T) {
	t.Parallel()
	secure, _ := serverstest.TLS(t, "orders")
	for name, test := range map[string]struct {
		broker string
		tls    bool
		is     func(error) bool
		says   string
	}{
		"unknown authority": {secure.Addrs[0], true, as[*tls.CertificateVerificationError],
			"correct RootCAs or ServerName of Net.TLS in Config.Sarama"},
		"unknown host": {"no-such-host.invalid:9092", false, as[*net.DNSError], "correct the brokers' addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			cfg.Brokers = []string{test.broker}
			cfg.Sarama = func(c *sarama.Config) {
				c.Net.TLS.Enable, c.Net.TLS.Config = test.tls,
					&tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
			}
			err := startError(t, cfg, 0) // StartTimeout is 30 s
			says(t, err, test.broker, test.says)
			if !test.is(err) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// What one part of the start has found does not hide what the others have, and does not wait until the last of them has
// given up.
func TestPartsOfTheStartHideNothing(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	down := func(context.Context) error {
		return consumer.RetryAfter(time.Second, errors.New("the database does not answer"))
	}
	wrong := func(context.Context) error { return errTable }
	cfg := config(b, serverstest.Group(t), topic, checking(down))
	cfg.Topics["missing"] = consumer.Topic{Handler: checking(wrong)}
	says(t, startError(t, cfg, 0), `topics that do not exist: "missing"`, "the database does not answer", errTable.Error())

	cfg.Brokers = []string{closedAddr(t)} // StartTimeout is 30 s
	says(t, startError(t, cfg, 0), "connection refused", "the database does not answer", errTable.Error())
}
