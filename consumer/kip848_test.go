package consumer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A member of another client that uses Kafka's newer protocol (KIP-848) joins the group while it runs, and leaves it
// again: the group shares its partitions with it, sees new ones, and goes back. In-process brokers do not upgrade
// groups, so this is for Apache Kafka.
func TestMemberOfTheNewerProtocol(t *testing.T) {
	t.Parallel()
	for _, rebalance := range []consumer.Rebalance{consumer.Eager, consumer.Cooperative} {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				if b.Fake != nil {
					return
				}
				shareWithNewerMember(t, b, rebalance)
			})
		})
	}
}

func shareWithNewerMember(t *testing.T, b *serverstest.Broker, rebalance consumer.Rebalance) {
	t.Helper()
	topic, group := b.Topic(t, 4), serverstest.Group(t)
	var all places // of both members: what one has not committed when it goes comes again to the other
	var s seen
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		all.add(msg.Partition, msg.Offset)
		return s.Handle(ctx, msg)
	}))
	cfg.Sarama, cfg.Rebalance = quick, rebalance
	members := []*member{start(t, cfg)}
	eventually(t, "it runs alone", func() bool { return shared(members, 4) })

	var other atomic.Int32
	leave := joinNewer(t, b, group, topic, &other, &all)
	eventually(t, "it gives partitions to the newer member", func() bool {
		n := len(members[0].Status().Partitions)
		return n > 0 && n < 4
	})
	b.Produce(t, records(topic, 4, 10)...)
	eventually(t, "both consume", func() bool { return all.len() == 40 && s.len() > 0 && other.Load() > 0 })

	b.Grow(t, topic, 6)
	b.Produce(t, records(topic, 6, 1)[4:]...)
	eventually(t, "new partitions are consumed", func() bool { return all.len() == 42 })

	leave()
	eventually(t, "it has all partitions again", func() bool { return shared(members, 6) })
	if err := members[0].stop(); err != nil {
		t.Fatal(err)
	}
}

// places are the messages that were handled, each once.
type places struct {
	mu  sync.Mutex
	set map[[2]int64]bool
}

func (p *places) add(partition int32, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		p.set = map[[2]int64]bool{}
	}
	p.set[[2]int64{int64(partition), offset}] = true
}

func (p *places) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.set)
}

// joinNewer joins as a member of the newer protocol, and counts what it consumes.
func joinNewer(t *testing.T, b *serverstest.Broker, group, topic string, n *atomic.Int32, all *places) (leave func()) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachRecord(func(r *kgo.Record) {
				n.Add(1)
				all.add(r.Partition, r.Offset)
			})
			_ = client.CommitUncommittedOffsets(ctx)
		}
	})
	leave = sync.OnceFunc(func() {
		cancel()
		polling.Wait()
		client.Close()
	})
	t.Cleanup(leave)
	return leave
}
