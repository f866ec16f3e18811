package consumer_test

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// text returns size bytes that come to about half of it when they are compressed.
func text(size int) []byte {
	b := make([]byte, size/2)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return []byte(hex.EncodeToString(b))
}

// produceBacklog writes each messages to each of the partitions, in ten batches.
func produceBacklog(t *testing.T, b *serverstest.Broker, topic string, partitions, each, size int,
	codec sarama.CompressionCodec) {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Producer.Return.Successes, conf.Producer.Partitioner, conf.Producer.Compression = true,
		sarama.NewManualPartitioner, codec
	p, err := sarama.NewSyncProducer(b.Addrs, conf)
	must(t, err)
	defer func() { must(t, p.Close()) }()
	for range 10 {
		var msgs []*sarama.ProducerMessage
		for i := range partitions * each / 10 {
			msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % partitions),
				Value: sarama.ByteEncoder(text(size))})
		}
		must(t, p.SendMessages(msgs))
	}
}

// A backlog in many partitions is held within twice the limits, though each partition is read whatever the others hold.
func TestBacklogOfManyPartitions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rebalance              consumer.Rebalance
		partitions, size, each int
		codec                  sarama.CompressionCodec
		limits                 consumer.Limits
	}{
		"40 with small messages": {consumer.Eager, 40, 100, 1500, sarama.CompressionNone,
			consumer.Limits{Messages: 20_000}},
		"40 with small messages, compressed": {consumer.Eager, 40, 100, 1500, sarama.CompressionZSTD,
			consumer.Limits{Messages: 20_000}},
		"40 with large messages": {consumer.Eager, 40, 100_000, 10, sarama.CompressionNone,
			consumer.Limits{Bytes: 10 << 20}},
		"40 with large messages, compressed": {consumer.Eager, 40, 100_000, 10, sarama.CompressionZSTD,
			consumer.Limits{Bytes: 10 << 20}},
		"120 with small messages": {consumer.Eager, 120, 100, 500, sarama.CompressionNone,
			consumer.Limits{Messages: 20_000}},
		"400 with larger ones, compressed": {consumer.Eager, 400, 10_000, 10, sarama.CompressionSnappy,
			consumer.Limits{Bytes: 16 << 20}},
		"in Cooperative": {consumer.Cooperative, 40, 100, 1500, sarama.CompressionNone,
			consumer.Limits{Messages: 20_000}},
		"in ToCooperative": {consumer.ToCooperative, 40, 100, 1500, sarama.CompressionNone,
			consumer.Limits{Messages: 20_000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, int32(c.partitions)), serverstest.Group(t)
			produceBacklog(t, b, topic, c.partitions, c.each, c.size, c.codec)
			release, handled := make(chan struct{}), atomic.Int64{}
			cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
				select {
				case <-release:
					handled.Add(1)
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}))
			cfg.Rebalance, cfg.Limits = c.rebalance, c.limits
			m := start(t, cfg)
			held, bytes := 0, 0
			each := func(ok func(p consumer.PartitionStatus) bool) func() bool {
				return func() bool {
					held, bytes = 0, 0
					all := m.Status().Partitions
					for _, p := range all {
						held, bytes = held+p.Held, bytes+p.Bytes
						if !ok(p) {
							return false
						}
					}
					return len(all) == c.partitions
				}
			}
			eventually(t, "it has all partitions", each(func(consumer.PartitionStatus) bool { return true }))
			eventually(t, "it has messages of each", each(func(p consumer.PartitionStatus) bool { return p.Held > 0 }))
			eventually(t, "each is paused, or has come to its end", each(func(p consumer.PartitionStatus) bool {
				return p.Held > 0 && (p.Paused || p.Held == c.each)
			}))
			t.Logf("%d messages and %d bytes are held", held, bytes)
			if most := c.limits.Messages; most > 0 && held > 2*most {
				t.Errorf("%d messages are held of %d", held, most)
			}
			if most := c.limits.Bytes; most > 0 && bytes > 2*most {
				t.Errorf("%d bytes are held of %d", bytes, most)
			}
			close(release)
			total := int64(c.partitions * c.each)
			eventually(t, "all are handled", func() bool { return handled.Load() == total })
			must(t, m.stop())
		})
	}
}
