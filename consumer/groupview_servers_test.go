package consumer_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A group whose partitions the coordinator assigns (KIP-848) is shown as others are, though no member of it can be
// einmal's.
func TestDescribeGroupOfTheServersAssignment(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 3), serverstest.Group(t)
		b.Produce(t, records(topic, 2, 10)...)
		member, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.ServerSideBalancer(), kgo.ClientID("another"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		must(t, err)
		t.Cleanup(member.CloseAllowingRebalance)
		for read := 0; read < 20; {
			fetches := member.PollFetches(t.Context())
			must(t, fetches.Err())
			read += fetches.NumRecords()
		}
		must(t, member.CommitUncommittedOffsets(t.Context()))
		g := &groupLook{T: t, client: client(t, b), name: group}
		eventually(t, "its member, partitions and offsets are shown", func() bool {
			if !g.look() || g.State != "Stable" || g.Strategy == "" || len(g.Members) != 1 || len(g.Partitions) != 3 {
				return false
			}
			m := g.Members[0]
			assigned := len(m.Partitions) == 3 && m.Partitions[2].Topic == topic && m.Partitions[2].Partition == 2 &&
				g.Partitions[0].Member == m.ID
			return m.ClientID == "another" && m.Host != "" && (assigned || b.Fake != nil) && // which names no topic
				g.Partitions[0].Committed == 10 && g.Partitions[0].End == 10 && g.Partitions[1].Lag() == 0
		})
		member.CloseAllowingRebalance()
		eventually(t, "nobody is left", func() bool {
			return g.look() && len(g.Members) == 0 && g.State == "Empty" && len(g.Partitions) == 3
		})
	})
}
