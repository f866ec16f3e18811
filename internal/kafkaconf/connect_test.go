package kafkaconf_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// readTimeout is what a frozen broker costs whoever waits for it; soon is much less.
const readTimeout, soon = 15 * time.Second, 7 * time.Second

// network is a dialer to some of whose addresses connections are opened and left without an answer, as by a frozen
// broker.
type network struct {
	mu     sync.Mutex
	frozen map[string]bool
	ends   []net.Conn
}

func (n *network) Dial(kind, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.frozen[addr] {
		return net.Dial(kind, addr)
	}
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	n.ends = append(n.ends, server)
	return client, nil
}

func (n *network) freeze(addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = map[string]bool{}
	for _, addr := range addrs {
		n.frozen[addr] = true
	}
	for _, c := range n.ends {
		_ = c.Close()
	}
	n.ends = nil
}

func conf(n *network) (*sarama.Config, *kafkaconf.Dialer) {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Net.ReadTimeout = readTimeout
	c.Metadata.Retry.Backoff = 10 * time.Millisecond
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, n
	return c, kafkaconf.NewDialer(c)
}

// A frozen broker delays neither the client nor what it asks any broker, wherever it stands among the addresses, also
// if only the others name it.
func TestConnectPassesOverFrozenBrokers(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	for _, seeds := range [][]string{b.Addrs, b.Addrs[1:]} {
		for range 3 { // sarama takes the addresses in any order
			var n network
			n.freeze(b.Addrs[0])
			c, dialer := conf(&n)
			began := time.Now()
			client, err := kafkaconf.Connect(t.Context(), seeds, c, dialer)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := client.RefreshMetadata(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > soon {
					t.Fatalf("it took %v", took)
				}
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			dialer.End()
		}
	}
}

// When it answers it is as good as any.
func TestConnectAllowsABrokerThatAnswersLater(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(2))
	var n network
	n.freeze(b.Addrs[0])
	c, dialer := conf(&n)
	client, err := kafkaconf.Connect(t.Context(), b.Addrs, c, dialer)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := dialer.Dial("tcp", b.Addrs[0]); err == nil ||
		!strings.Contains(err.Error(), b.Addrs[0]+" is passed over") {
		t.Errorf("a connection to it: %v", err)
	}
	n.freeze()
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := dialer.Dial("tcp", b.Addrs[0])
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Where nobody answers, the error has the reason for each address, and the end of ctx ends the wait.
func TestConnectWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	var n network
	n.freeze("frozen:9092")
	c, dialer := conf(&n)
	defer dialer.End()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = kafkaconf.Connect(ctx, []string{closed, "frozen:9092"}, c, dialer)
	if took := time.Since(began); took > soon {
		t.Errorf("it took %v", took)
	}
	for _, text := range []string{closed, "connection refused", "frozen:9092: ", "does not answer"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v hides its cause", err)
	}
}

func TestRemedy(t *testing.T) {
	t.Parallel()
	unknown := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	noHost := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name string
		err  error
		says string // nothing where waiting may help
	}{
		{"credentials", sarama.ErrSASLAuthenticationFailed, "correct Net.SASL in X"},
		{"credentials, by all", kafkaconf.NoAnswer{"a": sarama.ErrSASLAuthenticationFailed,
			"b": sarama.ErrSASLAuthenticationFailed}, "correct Net.SASL in X"},
		{"unknown authority", unknown, "RootCAs or ServerName of Net.TLS in X"},
		{"unknown authority, by a check of the user", x509.UnknownAuthorityError{}, "RootCAs"},
		{"another name", x509.HostnameError{}, "ServerName"},
		{"expired", x509.CertificateInvalidError{}, "certificate"},
		{"no TLS", tls.RecordHeaderError{}, "leave Net.TLS out in X"},
		{"no client certificate", &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")},
			"Certificates"},
		{"unknown host", noHost, "no such host is known"},
		{"unknown host and authority", kafkaconf.NoAnswer{"a": noHost, "b": unknown}, "addresses; the broker's certificate"},
		{"the name server does not answer", &net.DNSError{IsTimeout: true}, ""},
		{"refused", refused, ""},
		{"one of two refused", kafkaconf.NoAnswer{"a": refused, "b": unknown}, ""},
		{"cut", io.EOF, ""},
		{"no answer", kafkaconf.NoAnswer{"a": context.DeadlineExceeded}, ""},
	} {
		got := kafkaconf.Remedy(test.err, " in X")
		if test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, want %q", test.name, got, test.says)
		}
	}
}
