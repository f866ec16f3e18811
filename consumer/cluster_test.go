package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A Cluster answers for messages and groups, and says why there is none.
func TestCluster(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic := b.Topic(t, 1)
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder("v"),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}}})
		c, err := consumer.NewCluster(b.Addrs, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		msg, err := c.Message(ctx, topic, 0, 0)
		if err != nil || string(msg.Key) != "k" || string(msg.Value) != "v" || msg.Topic != topic || len(msg.Headers) != 1 ||
			string(msg.Headers[0].Value) != "1" || msg.Timestamp.IsZero() {
			t.Errorf("the message is %+v, %v", msg, err)
		}
		for says, ask := range map[string]func() (*consumer.Message, error){
			"yet":              func() (*consumer.Message, error) { return c.Message(ctx, topic, 0, 1) },
			"has no partition": func() (*consumer.Message, error) { return c.Message(ctx, topic, 7, 0) },
			"topic":            func() (*consumer.Message, error) { return c.Message(ctx, topic+"-none", 0, 0) },
			"which message?":   func() (*consumer.Message, error) { return c.Message(ctx, "", 0, 0) },
		} {
			if _, err := ask(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("the error is %v, want %q", err, says)
			}
		}
		if _, err := c.Group(ctx, serverstest.Group(t)); !errors.Is(err, consumer.ErrNoGroup) {
			t.Errorf("the group: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Message(ctx, topic, 0, 0); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Brokers may be away at first: it asks again, and a caller waits no longer than its context says.
func TestClusterWithoutBrokers(t *testing.T) {
	t.Parallel()
	c, err := consumer.NewCluster([]string{"127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := c.Group(ctx, "g"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("the error is %v", err)
		}
		cancel()
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := consumer.NewCluster(nil, nil); err == nil {
		t.Error("it takes no brokers")
	}
	if _, err := consumer.NewCluster([]string{"x:1"}, func(c *sarama.Config) { c.Net.DialTimeout = 0 }); err == nil {
		t.Error("it takes a configuration that is wrong")
	}
}
