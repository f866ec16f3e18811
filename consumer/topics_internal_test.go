package consumer

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A rebalance asks for metadata a few times, however many topics there are.
func TestMetadataOfARebalance(t *testing.T) {
	t.Parallel()
	const topics, most = 100, 15
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	cfg := Config{
		Brokers: b.Addrs, Group: serverstest.Group(t), Logger: slog.New(slog.DiscardHandler), Topics: map[string]Topic{},
		Sarama: func(c *sarama.Config) { often(c); c.Metadata.RefreshFrequency = 5 * time.Minute },
	}
	for range topics {
		cfg.Topics[b.Topic(t, 1)] = Topic{Handler: ignore}
	}
	var asked atomic.Int32
	b.Fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		asked.Add(1)
		return nil, nil, false //nolint:nilnil // not handled
	})
	c := runs(t, cfg)
	soon(t, "it runs", func() bool { return len(c.Status().Partitions) == topics })
	if n := asked.Load(); n > 2*most {
		t.Errorf("the start asked for metadata %d times", n)
	}
	for range 2 {
		before, sessions := asked.Load(), c.Status().Totals.Rebalances
		b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: kerr.RebalanceInProgress, Count: 1})
		soon(t, "it joins again", func() bool {
			s := c.Status()
			return s.Totals.Rebalances > sessions && len(s.Partitions) == topics
		})
		if n := asked.Load() - before; n < 1 || n > most {
			t.Errorf("a rebalance asked for metadata %d times, want at most %d", n, most)
		}
	}
}
