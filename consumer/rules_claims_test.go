package consumer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
)

// A pause ends with the claim: a partition that comes back is read.
func TestPauseEndsWithTheClaim(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 10)
			h := newBlocking(true)
			cfg := config(b, group, topic, h)
			cfg.Sarama, cfg.Rebalance, cfg.DrainTimeout, cfg.Limits.PartitionMessages = quick, rebalance, 50*time.Millisecond, 1
			m := start(t, cfg)
			eventually(t, "both partitions are paused", func() bool {
				p := m.Status().Partitions
				return len(p) == 2 && p[0].Paused && p[1].Paused
			})
			cfg.Topics = map[string]consumer.Topic{topic: {Handler: newBlocking(true)}}
			other := start(t, cfg)
			eventually(t, "both members share the partitions", func() bool { return shared([]*member{m, other}, 2) })
			if err := other.stop(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the first has both again", func() bool { return shared([]*member{m}, 2) })
			close(h.release)
			eventually(t, "all are handled", func() bool { return h.len() == 20 })
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// call is one call of a handler that waits until it is let go, whatever its context says.
type call struct {
	partition int32
	release   chan struct{}
}

// A worker of a claim that has ended moves no offset, even if the partition has come back to the same member in the
// same session.
func TestWorkerOfAFormerClaim(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 1)
			calls := make(chan call, 100)
			cfg := config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
				c := call{msg.Partition, make(chan struct{})}
				calls <- c
				<-c.release
				return nil
			}))
			cfg.Rebalance, cfg.DrainTimeout = rebalance, 50*time.Millisecond
			cfg.Sarama = func(c *sarama.Config) {
				quick(c)
				c.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
			}
			m := start(t, cfg)
			former := map[int32]call{}
			for range 2 {
				c := receive(t, calls)
				former[c.partition] = c
			}
			cfg.Topics = map[string]consumer.Topic{topic: {Handler: newBlocking(true)}}
			other := start(t, cfg)
			eventually(t, "both members share the partitions", func() bool { return shared([]*member{m, other}, 2) })
			moved := other.Status().Partitions[0].Partition
			kept := 1 - moved
			if err := other.stop(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the first has both again", func() bool { return shared([]*member{m}, 2) })
			again := receive(t, calls)
			for ; again.partition != moved; again = receive(t, calls) {
				close(again.release)
			}
			close(former[moved].release)
			close(former[kept].release)
			eventually(t, "the partition that was kept is committed", func() bool {
				for len(calls) > 0 {
					close((<-calls).release)
				}
				return b.Committed(t, group, topic)[kept] == 1
			})
			if c := b.Committed(t, group, topic)[moved]; c > 0 {
				t.Errorf("committed %d of the other, whose message is still in work", c)
			}
			close(again.release)
			if err := m.stop(); err != nil {
				t.Error(err)
			}
			if c := b.Committed(t, group, topic)[moved]; c != 1 {
				t.Errorf("committed %d at the end, want 1", c)
			}
		})
	}
}

// Marks are committed in the background, not one by one.
func TestCommitsAreFew(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1000)
	commits := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Observe: true, Count: -1})
	var s seen
	began := time.Now()
	m := start(t, config(b, group, topic, &s))
	eventually(t, "all are handled", func() bool { return s.len() == 1000 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if c := b.Committed(t, group, topic); c[0] != 1000 {
		t.Errorf("committed %v", c)
	}
	if n, most := commits.Hits(), 3+int(time.Since(began)/time.Second); n < 1 || n > most {
		t.Errorf("%d commits, want one a second and one at the end, at most %d", n, most)
	}
}

// A commit that is refused is told, and made up for by the next one.
func TestRefusedCommitIsLogged(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 5)
	refused := b.Fake.Fault(forever(kmsg.OffsetCommit, kerr.OffsetMetadataTooLarge))
	var log lines
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Logger = log.logger()
	m := start(t, cfg)
	eventually(t, "it is told", func() bool { return s.len() == 5 && strings.Contains(log.String(), "reports an error") })
	refused.Remove()
	eventually(t, "the next commit makes up for it", func() bool { return b.Committed(t, group, topic)[0] == 5 })
	if err := m.stop(); err != nil || s.len() != 5 {
		t.Errorf("Run returned %v, %d were handled", err, s.len())
	}
}
