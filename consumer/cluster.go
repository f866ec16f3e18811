package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

// Cluster answers what operators ask of the brokers, for a console for example. It joins no group and commits nothing.
// It connects when it is first asked, and again where that has failed, so that brokers may be away when a service
// starts. It is safe for concurrent use.
type Cluster struct {
	brokers []string
	conf    *sarama.Config

	connecting chan struct{} // held by who connects
	mu         sync.Mutex
	client     sarama.Client
	dialer     *kafkaconf.Dialer
	closed     bool
}

// NewCluster returns a Cluster. configure may change the client's configuration, TLS and SASL for example; nil for
// none. It does no I/O.
func NewCluster(brokers []string, configure func(*sarama.Config)) (*Cluster, error) {
	conf := topicwindow.NewConfig()
	if configure != nil {
		configure(conf)
	}
	if len(brokers) == 0 {
		return nil, errors.New("einmal: NewCluster needs brokers: localhost:9092 for example")
	}
	if err := conf.Validate(); err != nil {
		return nil, fmt.Errorf("einmal: NewCluster: %w", err)
	}
	return &Cluster{brokers: brokers, conf: conf, connecting: make(chan struct{}, 1)}, nil
}

// Group is DescribeGroup.
func (c *Cluster) Group(ctx context.Context, name string) (*Group, error) {
	client, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	return DescribeGroup(ctx, client, name)
}

// Message reads one message of a topic, outside of any group, without what a consumer would add to it. The error says
// why there is none: its topic, partition or offset are not there, or what stands there is not to be seen. Unless
// configure has set the isolation level to ReadUncommitted, that includes what was aborted.
func (c *Cluster) Message(ctx context.Context, topic string, partition int32, offset int64) (*Message, error) {
	if topic == "" || partition < 0 || offset < 0 {
		return nil, errors.New("einmal: which message? Name a topic, and a partition and an offset from 0")
	}
	client, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	return bounded(ctx, 0, func() (*Message, error) {
		reader, err := topicwindow.New(client, topic)
		if err != nil {
			return nil, err
		}
		rec, err := reader.Record(ctx, partition, offset)
		if err != nil {
			return nil, err
		}
		a := attempting{}
		a.fill(rec, &names{})
		a.msg.TopicID = reader.TopicID()
		return &a.msg, nil
	}, func(*Message) {})
}

// connected returns the client. One caller connects, the others wait for it.
func (c *Cluster) connected(ctx context.Context) (sarama.Client, error) {
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("einmal: the brokers %v have not answered: %w", c.brokers, ctx.Err())
	}
	c.mu.Lock()
	client, closed := c.client, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, errors.New("einmal: the Cluster is closed")
	case client != nil && !client.Closed():
		return client, nil
	}
	conf := *c.conf
	dialer := kafkaconf.NewDialer(&conf)
	client, err := kafkaconf.Connect(ctx, c.brokers, &conf, dialer)
	if err != nil {
		dialer.End()
		return nil, fmt.Errorf("einmal: no broker of %v answers: %w", c.brokers, err)
	}
	return client, c.keep(client, dialer)
}

// keep keeps a client, unless Close was called meanwhile.
func (c *Cluster) keep(client sarama.Client, dialer *kafkaconf.Dialer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		dialer.End()
		return errors.Join(errors.New("einmal: the Cluster is closed"), client.Close())
	}
	c.client, c.dialer = client, dialer
	return nil
}

// Close ends the connections, and with them what is being asked.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.client == nil {
		return nil
	}
	c.dialer.End()
	client := c.client
	c.client = nil
	return client.Close()
}
