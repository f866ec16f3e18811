package consumer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A leader that looks for new partitions seldom, as one of another client may, learns of them all the same: a member
// that sees them joins with other data than before, without which Kafka would leave everything as it is.
func TestGrowthThatTheLeaderHasNotSeen(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		var claims atomic.Int32
		lead(t, b, group, topic, &claims)
		eventually(t, "the leader has both partitions", func() bool { return claims.Load() == 2 })
		var s seen
		cfg := config(b, group, topic, &s)
		cfg.Sarama = quick
		member := start(t, cfg)
		eventually(t, "each has one", func() bool { return claims.Load() == 1 && len(member.Status().Partitions) == 1 })
		b.Grow(t, topic, 4)
		eventually(t, "each has two", func() bool { return claims.Load() == 2 && len(member.Status().Partitions) == 2 })
	})
}

// lead has another client lead the group, one that asks for new partitions every hour. claims is how many partitions it
// has.
func lead(t *testing.T, b *serverstest.Broker, group, topic string, claims *atomic.Int32) {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_6_0_0
	conf.Metadata.RefreshFrequency = time.Hour
	conf.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	conf.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	g, err := sarama.NewConsumerGroup(b.Addrs, group, conf)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			_ = g.Consume(ctx, []string{topic}, claimCount{n: claims})
		}
	})
	t.Cleanup(func() {
		stop()
		loop.Wait()
		_ = g.Close()
	})
}

// claimCount is a sarama.ConsumerGroupHandler that counts its claims, and reads nothing.
type claimCount struct {
	idle
	n *atomic.Int32
}

func (c claimCount) Setup(s sarama.ConsumerGroupSession) error {
	for _, partitions := range s.Claims() {
		c.n.Add(int32(len(partitions)))
	}
	return nil
}

func (c claimCount) Cleanup(sarama.ConsumerGroupSession) error {
	c.n.Store(0)
	return nil
}
