package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// cluster is what the workers of a relay know about Kafka together: topics, partitions, leaders. It is safe for
// concurrent use.
type cluster struct {
	brokers []string
	conf    *sarama.Config
	grace   time.Duration // how long a topic may be unknown before its rows fail

	mu      sync.Mutex
	client  sarama.Client // nil until the brokers have answered once
	dialer  *kafkaconf.Dialer
	unknown map[string]*absence
}

// absence is since when a topic is unknown.
type absence struct{ first, last time.Time }

// metadataTimeout bounds questions that any broker answers at once.
const metadataTimeout = 3 * time.Second

// topicGrace lets a topic that was created a moment ago become known to all brokers.
const topicGrace = 5 * time.Second

var (
	errUnknownTopic   = errors.New("the topic does not exist: create it, then retry the event")
	errTopicForbidden = errors.New("the relay is not authorised to write to the topic: let it, then retry the event")
)

func newCluster(brokers []string, conf *sarama.Config) *cluster {
	return &cluster{brokers: brokers, conf: conf, grace: topicGrace, unknown: map[string]*absence{}}
}

// reach reports whether any broker answers. The end of ctx cuts it short.
func (c *cluster) reach(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	conf := *c.conf
	conf.Net.DialTimeout = min(conf.Net.DialTimeout, metadataTimeout)
	conf.Net.ReadTimeout = min(conf.Net.ReadTimeout, metadataTimeout)
	conf.ApiVersionsRequest = false // greet asks
	dialer := kafkaconf.NewDialer(&conf)
	defer context.AfterFunc(ctx, dialer.End)()
	addrs := c.addresses()
	answers := make(chan error, len(addrs))
	for _, addr := range addrs {
		go func() { answers <- greet(addr, &conf) }()
	}
	err := sarama.ErrOutOfBrokers
	for range addrs {
		if err = <-answers; err == nil {
			break
		}
	}
	dialer.End()
	return err
}

// greet connects, with all that belongs to it, TLS and SASL, and asks something: a broker that is frozen still
// accepts connections.
func greet(addr string, conf *sarama.Config) error {
	b := sarama.NewBroker(addr)
	if err := b.Open(conf); err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.Connected(); err != nil { // waits until it is open, or has failed
		return err
	}
	res, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
	switch timedOut, _ := errors.AsType[net.Error](err); {
	case timedOut != nil && timedOut.Timeout():
		return fmt.Errorf("the broker %s accepts connections and has not answered for %v: %w",
			addr, conf.Net.ReadTimeout, err)
	case err != nil:
		return err
	case res.ErrorCode != 0:
		return sarama.KError(res.ErrorCode)
	}
	return nil
}

// open makes the client, which does no I/O.
func (c *cluster) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return nil
	}
	conf := *c.conf
	// a batch may wait for it
	conf.Net.DialTimeout = min(conf.Net.DialTimeout, metadataTimeout)
	conf.Net.ReadTimeout = min(conf.Net.ReadTimeout, metadataTimeout)
	conf.Metadata.Timeout = min(conf.Metadata.Timeout, metadataTimeout)
	c.dialer = kafkaconf.NewDialer(&conf)
	client, err := sarama.NewClient(c.brokers, &conf)
	c.client = client
	return err
}

// addresses are those of the brokers that have been seen, and the ones to begin with.
func (c *cluster) addresses() (list []string) {
	for _, b := range c.client.Brokers() {
		list = append(list, b.Addr())
	}
	list = append(list, c.brokers...)
	slices.Sort(list)
	list = slices.Compact(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // no secret
	return list
}

// close ends the connections.
func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.dialer.End()
		_ = c.client.Close()
	}
}

func (c *cluster) partitions(topic string) (int32, error) {
	list, err := c.client.Partitions(topic)
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return 0, errTopicForbidden
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return 0, c.missing(topic)
	case err == nil && len(list) == 0:
		err = sarama.ErrLeaderNotAvailable
	}
	if err != nil {
		return 0, err
	}
	c.found(topic)
	return int32(len(list)), nil //nolint:gosec // Kafka's own type
}

// missing notes that a topic is unknown. The error is errUnknownTopic when it has been so for a while.
func (c *cluster) missing(topic string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	a := c.unknown[topic]
	if a == nil || now.Sub(a.last) > max(time.Minute, 2*c.grace) {
		a = &absence{first: now}
		c.unknown[topic] = a
	}
	a.last = now
	if now.Sub(a.first) < c.grace {
		return sarama.ErrUnknownTopicOrPartition
	}
	return errUnknownTopic
}

func (c *cluster) found(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unknown, topic)
}

// leader returns the address of the leader.
func (c *cluster) leader(p topicPartition) (string, error) {
	b, err := c.client.Leader(p.topic, p.partition)
	if err != nil {
		return "", err
	}
	return b.Addr(), nil
}

// refresh asks for the leaders of topics again. That it fails shows when they are needed.
func (c *cluster) refresh(topics ...string) { _ = c.client.RefreshMetadata(topics...) }
