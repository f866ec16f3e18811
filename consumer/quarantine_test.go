package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// bombRecords are the records of a bomb.
const bombRecords = maxDecompressed>>20 + 1

// bomb produces a batch of some kB that comes to more than the tests' bound when it is decompressed.
func bomb(t *testing.T, b *serverstest.Broker, topic string) {
	t.Helper()
	c := sarama.NewConfig()
	c.Version, c.Producer.Return.Successes, c.Producer.Compression = sarama.V3_6_0_0, true, sarama.CompressionZSTD
	if b.Fake == nil { // a broker unpacks what it takes, and this one's image may be without zstd's library
		c.Producer.Compression = sarama.CompressionGZIP
	}
	c.Producer.MaxMessageBytes, c.Producer.Partitioner = 64<<20, sarama.NewManualPartitioner
	c.Producer.Flush.Messages, c.Producer.Flush.Frequency = bombRecords, time.Minute // all at once
	p, err := sarama.NewSyncProducer(b.Addrs, c)
	must(t, err)
	defer func() { _ = p.Close() }()
	var msgs []*sarama.ProducerMessage
	for range bombRecords {
		msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(make([]byte, 1<<20))})
	}
	must(t, p.SendMessages(msgs))
}

// A batch that comes to too much when it is decompressed stops its partition, with an error, and no other. When it is
// gone, the partition goes on.
func TestBatchThatUnpacksTooLarge(t *testing.T) {
	t.Parallel()
	for _, rebalance := range []consumer.Rebalance{consumer.Eager, consumer.Cooperative} {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 6), serverstest.Group(t) // some are the same broker's
				b.Produce(t, records(topic, 6, 1)...)
				var s seen
				var log lines
				cfg := config(b, group, topic, &s)
				cfg.Rebalance, cfg.Logger = rebalance, log.logger()
				m := start(t, cfg)
				eventually(t, "all are handled", func() bool { return s.len() == 6 })
				bomb(t, b, topic)
				eventually(t, "Status tells of the partition", func() bool {
					err := partition(t, m, topic).FetchError
					return errors.Is(err, sarama.ErrDecompressedBatchTooLarge) && strings.Contains(log.String(), "cannot be decoded")
				})
				b.Produce(t, records(topic, 6, 2)[2:]...) // for the others
				b.Produce(t, records(topic, 1, 1)...)     // behind it
				eventually(t, "the others go on", func() bool { return s.len() == 6+10 })
				b.Produce(t, records(topic, 6, 2)[2:]...)
				eventually(t, "the others go on still", func() bool { return s.len() == 6+20 })
				eventually(t, "it is known still, whatever else a look at it met", func() bool {
					return errors.Is(partition(t, m, topic).FetchError, sarama.ErrDecompressedBatchTooLarge)
				})
				if p := partition(t, m, topic); p.Next != 1 {
					t.Errorf("%+v", p)
				}
				deleteRecords(t, b, topic, 1+bombRecords)
				eventually(t, "the partition goes on behind it", func() bool { return s.len() == 6+20+1 })
				if n := strings.Count(log.String(), "cannot be decoded"); n != 1 {
					t.Errorf("it was told %d times", n)
				}
				must(t, m.stop())
			})
		})
	}
}

// A replay ends there with an error.
func TestReplayOfABatchThatUnpacksTooLarge(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Produce(t, records(topic, 1, 1)...)
	bomb(t, b, topic)
	cfg := config(b, serverstest.Group(t), topic,
		middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil))
	report, err := consumer.Replay(t.Context(), cfg, whole(topic))
	if !errors.Is(err, sarama.ErrDecompressedBatchTooLarge) || !strings.Contains(err.Error(), topic+"[0] at 0") ||
		report.Next[0].From != 0 {
		t.Errorf("%v, %+v", err, report)
	}
}
