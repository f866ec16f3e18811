package consumer

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// closedBetween is a client that is closed once its brokers have been told.
type closedBetween struct{ sarama.Client }

func (c closedBetween) Brokers() []*sarama.Broker {
	defer c.Client.Close()
	return c.Client.Brokers()
}

// A client that is closed meanwhile leaves no connection open.
func TestAskAnyOfAClosedClient(t *testing.T) {
	t.Parallel()
	cluster := kfake.MustCluster(kfake.NumBrokers(3))
	t.Cleanup(cluster.Close)
	client, err := sarama.NewClient(cluster.ListenAddrs(), sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	brokers := client.Brokers()
	_, err = askTopics(closedBetween{client}, []string{"any"})
	if !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("error %v, want %v", err, sarama.ErrOutOfBrokers)
	}
	for _, b := range brokers {
		if open, _ := b.Connected(); open {
			t.Errorf("broker %d is connected", b.ID())
			_ = b.Close()
		}
	}
}

// The next broker is asked when one does not answer.
func TestAskAnyAsksTheNext(t *testing.T) {
	t.Parallel()
	cluster := kfake.MustCluster(kfake.NumBrokers(3))
	t.Cleanup(cluster.Close)
	client, err := sarama.NewClient(cluster.ListenAddrs(), sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	asked := map[int32]bool{}
	_, err = askAny(client, func(b *sarama.Broker) (bool, error) {
		if open, err := b.Connected(); !open {
			t.Errorf("broker %d is not connected: %v", b.ID(), err)
		}
		asked[b.ID()] = true
		if len(asked) < 3 {
			return false, errors.New("no answer")
		}
		return true, nil
	})
	if err != nil || len(asked) != 3 {
		t.Errorf("error %v, asked %v", err, asked)
	}
}
