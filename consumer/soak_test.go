package consumer_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var soak = flag.Duration("consumer.soak", 5*time.Second, "how long TestOneStuckKeyStaysFlat keeps up the load")

const (
	soakAhead      = 2000                                // Limits.Ahead
	soakStuck      = 6000                                // messages of the stuck key's partition
	soakMessages   = 1000                                // Limits.PartitionMessages
	soakPartitions = 4                                   // the first has the stuck key
	soakBatch      = 50                                  // messages of a partition that are produced at once
	soakSlack      = 1000                                // messages: what the fetch under way brings on top of a limit is less
	soakHeld       = (soakAhead + soakSlack) / soakBatch // messages of the stuck key: one of each batch
)

// One key fails for ever, while all others go on, new keys all the time: neither memory nor goroutines grow with that.
// The stuck key's partition is paused at Limits.Ahead, and what is held stays bounded. When the key has healed,
// everything is finished.
//
//nolint:paralleltest // it looks at the memory and the goroutines of the process
func TestOneStuckKeyStaysFlat(t *testing.T) {
	s := newSoaking(t)
	s.load(*soak / 5) // until everything has the size that it needs
	eventually(t, "the partition of the stuck key is paused",
		func() bool { return s.stuck().Paused && s.stuck().Held <= soakHeld })
	before, most := s.usage(), usage{}
	for range 16 {
		s.load(*soak / 20)
		s.wantBounds()
		most = most.max(s.usage())
	}
	t.Logf("%d messages, %d failed attempts at the stuck one; before: %v; at most: %v", s.handled.Load(), s.failed.Load(),
		before, most)
	if most.goroutines > before.goroutines+20 || most.heap > before.heap+2<<20 {
		t.Errorf("not flat: %v before, %v later", before, most)
	}
	s.healed.Store(true)
	eventually(t, "everything is finished", func() bool {
		return s.stuck().Next == soakStuck && s.handled.Load() == s.produced
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}

// soaking is a Consumer under load with a stuck key.
type soaking struct {
	*member
	t        *testing.T
	topic    string
	producer sarama.SyncProducer
	admin    sarama.ClusterAdmin
	produced int64        // to the other partitions
	handled  atomic.Int64 // of them
	failed   atomic.Int64
	healed   atomic.Bool
}

func newSoaking(t *testing.T) *soaking {
	t.Helper()
	// This process also holds the log: small segments let go of what is read.
	b := serverstest.InProcess(t, kfake.BrokerConfigs(map[string]string{"log.segment.bytes": "65536"}))
	s := &soaking{t: t, topic: b.Topic(t, soakPartitions)}
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	var err error
	if s.producer, err = sarama.NewSyncProducer(b.Addrs, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.producer.Close() })
	if s.admin, err = sarama.NewClusterAdmin(b.Addrs, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.admin.Close() })
	for range soakStuck / soakBatch { // more than the limit lets in
		s.produce(0)
	}
	cfg := ordered(b, serverstest.Group(t), s.topic, consumer.HandlerFunc(s.handle), consumer.KeyOrder, 16)
	cfg.Limits.Ahead, cfg.Limits.PartitionMessages = soakAhead, soakMessages
	cfg.Logger = slog.New(slog.DiscardHandler) // the test's log would grow
	cfg.Sarama = func(c *sarama.Config) { c.Consumer.Fetch.Default = 4 << 10 }
	s.member = start(t, cfg)
	eventually(t, "all partitions are assigned", func() bool { return len(s.Status().Partitions) == soakPartitions })
	return s
}

const stuckKey = "stuck"

// handle does nothing, or fails.
func (s *soaking) handle(_ context.Context, msg *consumer.Message) error {
	if string(msg.Key) == stuckKey && !s.healed.Load() {
		s.failed.Add(1)
		return consumer.RetryAfter(5*time.Millisecond, errHandler)
	}
	if msg.Partition > 0 {
		s.handled.Add(1)
	}
	return nil
}

// produce appends a batch to a partition. Keys are long and do not come again, but for the stuck one.
func (s *soaking) produce(partition int32) {
	s.t.Helper()
	var batch []*sarama.ProducerMessage
	for i := range soakBatch {
		key := fmt.Sprintf("%0100d", s.produced+int64(i))
		if partition == 0 && i == 0 {
			key = stuckKey
		}
		batch = append(batch, &sarama.ProducerMessage{Topic: s.topic, Partition: partition, Key: sarama.StringEncoder(key)})
	}
	if err := s.producer.SendMessages(batch); err != nil {
		s.t.Fatal(err)
	}
	if partition > 0 {
		s.produced += soakBatch
	}
}

// load produces to the other partitions for as long as d, and waits until they are done with it.
func (s *soaking) load(d time.Duration) {
	s.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		for p := range int32(soakPartitions - 1) {
			s.produce(1 + p)
		}
		eventually(s.t, "the others go on", func() bool { return s.produced-s.handled.Load() < soakMessages })
	}
	eventually(s.t, "the others are done", func() bool {
		idle := !slices.ContainsFunc(s.Status().Partitions[1:], func(p consumer.PartitionStatus) bool { return p.Held > 0 })
		return s.handled.Load() == s.produced && idle
	})
	s.deleteRead()
}

// deleteRead keeps the log from growing.
func (s *soaking) deleteRead() {
	s.t.Helper()
	read := map[int32]int64{}
	for _, p := range s.Status().Partitions[1:] {
		read[p.Partition] = p.Next
	}
	if err := s.admin.DeleteRecords(s.topic, read); err != nil {
		s.t.Fatal(err)
	}
}

func (s *soaking) stuck() consumer.PartitionStatus { return s.Status().Partitions[0] }

// wantBounds checks that the partition of the stuck key waits, and holds no more than the messages of that key within
// Limits.Ahead.
func (s *soaking) wantBounds() {
	s.t.Helper()
	if p := s.stuck(); !p.Paused || p.Oldest != 0 || p.Ahead <= soakAhead || p.Ahead > soakAhead+soakSlack ||
		p.Held > soakHeld {
		s.t.Errorf("the stuck key's partition: %+v", p)
	}
}

// usage is what the process holds while nothing is in work but the stuck message.
type usage struct {
	goroutines int
	heap       uint64
}

func (s *soaking) usage() usage {
	runtime.GC()
	runtime.GC() // what pools hold survives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), m.HeapAlloc}
}

func (u usage) max(v usage) usage {
	return usage{max(u.goroutines, v.goroutines), max(u.heap, v.heap)}
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d KiB on the heap", u.goroutines, u.heap>>10)
}
