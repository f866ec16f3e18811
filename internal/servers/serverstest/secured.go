package serverstest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// saslUser and SASLPassword are what an in-process cluster of SASL knows.
const (
	saslUser     = "billing"
	SASLPassword = "right"
)

// SASL starts a cluster of one node that asks for SASL/PLAIN, with topics of one partition in it.
func SASL(t testing.TB, topics ...string) *Broker {
	t.Helper()
	return secured(t, nil, topics)
}

// TLS starts a cluster as SASL does, which asks for TLS too. A client that uses trust knows its certificate.
func TLS(t testing.TB, topics ...string) (b *Broker, trust func(*sarama.Config)) {
	t.Helper()
	server := httptest.NewTLSServer(nil) // it has a certificate for 127.0.0.1
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	certificates := server.TLS.Certificates
	server.Close()
	b = secured(t, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}, topics)
	return b, func(c *sarama.Config) {
		c.Net.TLS.Enable, c.Net.TLS.Config = true, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
}

func secured(t testing.TB, cfg *tls.Config, topics []string) *Broker {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", saslUser, SASLPassword),
		kfake.SeedTopics(1, topics...)}
	if cfg != nil {
		opts = append(opts, kfake.TLS(cfg))
	}
	return InProcess(t, opts...)
}

// WithSASL has a client introduce itself to a cluster of SASL.
func WithSASL(password string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLTypePlaintext
		c.Net.SASL.User, c.Net.SASL.Password = saslUser, password
	}
}

// RefuseCredentials has an in-process cluster answer as a real broker does; by itself it cuts the connection.
func (b *Broker) RefuseCredentials() {
	b.Fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		res := kmsg.NewPtrSASLAuthenticateResponse()
		res.Version = req.GetVersion()
		res.ErrorCode = kerr.SaslAuthenticationFailed.Code
		message := "Authentication failed: Invalid username or password"
		res.ErrorMessage = &message
		return res, nil, true
	})
}
