package topicwindow

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// Security is how a program that has no sarama.Config of its own reaches the brokers.
type Security struct {
	TLS       *tls.Config // nil for none
	Mechanism string      // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; "" for no SASL
	User      string
	Password  string

	Uncommitted bool // read what is not committed, and what was aborted, too
}

// Cluster is a connection to brokers.
type Cluster struct {
	client sarama.Client
	dialer *kafkaconf.Dialer
	stop   func() bool
}

// Dial tries to reach a broker until ctx is done; the connections end with ctx too.
func Dial(ctx context.Context, brokers []string, security Security) (*Cluster, error) {
	conf, err := security.config()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dialer: kafkaconf.NewDialer(conf)}
	c.stop = context.AfterFunc(ctx, c.dialer.End)
	for {
		if c.client, err = kafkaconf.Connect(ctx, brokers, conf, c.dialer); err == nil {
			return c, nil
		}
		if remedy := kafkaconf.Remedy(err, ""); remedy != "" {
			c.end()
			return nil, fmt.Errorf("the brokers %v cannot be used: %w: %s", brokers, err, remedy)
		}
		select {
		case <-ctx.Done():
			c.end()
			return nil, fmt.Errorf("no broker of %v answered in time: %w: check the addresses, and whether the listener wants TLS or SASL", brokers, err)
		case <-time.After(retryPause):
		}
	}
}

func (c *Cluster) end() {
	c.stop()
	c.dialer.End()
}

// Topic returns a reader of a topic.
func (c *Cluster) Topic(name string) (*Reader, error) { return New(c.client, name) }

// Client is Kafka's client of the cluster, for what this package does not know. It stays the Cluster's.
func (c *Cluster) Client() sarama.Client { return c.client }

// Close ends the connections.
func (c *Cluster) Close() error {
	c.end()
	return c.client.Close()
}

// OpenPassword says that the password would be sent in clear text; "" if not.
func (s Security) OpenPassword() string {
	c, err := s.config()
	if err != nil {
		return ""
	}
	return kafkaconf.OpenPassword(c)
}

func (s Security) config() (*sarama.Config, error) {
	c := NewConfig()
	s.Apply(c)
	return c, c.Validate()
}

// NewConfig returns the client's configuration for who looks at a cluster: it reads what is committed, creates no
// topic, and waits for no answer for long.
func NewConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 5*time.Second, 12*time.Second, 12*time.Second
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 1, retryPause
	c.Consumer.IsolationLevel = sarama.ReadCommitted // as consumer.Config has it by default
	return c
}

// Apply sets what s says.
func (s Security) Apply(c *sarama.Config) {
	if s.Uncommitted {
		c.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	c.Net.TLS.Enable, c.Net.TLS.Config = s.TLS != nil, s.TLS
	if s.Mechanism == "" {
		return
	}
	c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, s.User, s.Password
	c.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	if hash := scramHash(s.Mechanism); hash != nil {
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scram{hash: hash} }
	}
}
