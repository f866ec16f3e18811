package serverstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers"
)

// EnvRequireKafka set to 1 makes a real Kafka a must for tests that run on each broker.
const EnvRequireKafka = "EINMAL_REQUIRE_KAFKA"

// Broker is a Kafka cluster for a test.
type Broker struct {
	// Addrs are the brokers, as host:port.
	Addrs []string
	// Kind is "in-process" or "kafka".
	Kind string
	// Fake injects faults into an in-process cluster; it is nil for a real one.
	Fake *kfake.Cluster
}

// InProcess starts a cluster of this test's own, closed when the test ends: see servers.InProcessKafka for its
// settings, which opts can change.
func InProcess(t testing.TB, opts ...kfake.Opt) *Broker {
	t.Helper()
	k, err := servers.InProcessKafka(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return newBroker(k)
}

func newBroker(k *servers.Kafka) *Broker {
	announce("broker", k.Origin)
	return &Broker{Addrs: k.Addrs, Kind: k.Kind, Fake: k.Fake}
}

// EachBroker runs f as parallel subtests "in-process", on a cluster of its own, and, where EINMAL_KAFKA_BROKERS names a
// cluster, "kafka". With EINMAL_REQUIRE_KAFKA=1 it fails if there is none.
func EachBroker(t *testing.T, f func(t *testing.T, b *Broker)) {
	t.Helper()
	t.Run(servers.InProcess, func(t *testing.T) {
		t.Parallel()
		f(t, InProcess(t))
	})
	if os.Getenv(servers.EnvKafkaBrokers) == "" && os.Getenv(EnvRequireKafka) != "1" {
		return
	}
	t.Run(servers.Apache, func(t *testing.T) {
		t.Parallel()
		f(t, running(t))
	})
}

// findRunning looks for the real cluster once per test binary.
var findRunning = sync.OnceValues(func() (*servers.Kafka, error) {
	if os.Getenv(servers.EnvKafkaBrokers) == "" {
		return nil, fmt.Errorf("%s=1 demands a real Kafka: set %s to its brokers", EnvRequireKafka, servers.EnvKafkaBrokers)
	}
	return servers.RealKafka(context.Background())
})

func running(t testing.TB) *Broker {
	t.Helper()
	k, err := findRunning()
	if err != nil {
		t.Fatal(err)
	}
	return newBroker(k)
}

// Topic creates a topic with a unique name, waits until each partition has a leader, and answers with the name. On a
// real cluster the topic is deleted when the test ends.
func (b *Broker) Topic(t testing.TB, partitions int32) string {
	t.Helper()
	name := unique(t)
	admin, done := b.admin(t)
	defer done()
	// -1: the cluster's own factor, so that acks=all can be met on a cluster of one node and of three
	err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1}, false)
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	if b.Fake == nil {
		t.Cleanup(func() { b.deleteTopic(t, name) })
	}
	eventually(t, time.Minute, func() error { return hasLeaders(admin, name, partitions) })
	return name
}

// Grow gives a topic more partitions, and waits until each has a leader.
func (b *Broker) Grow(t testing.TB, topic string, partitions int32) {
	t.Helper()
	admin, done := b.admin(t)
	defer done()
	if err := admin.CreatePartitions(topic, partitions, nil, false); err != nil {
		t.Fatalf("grow topic %s: %v", topic, err)
	}
	eventually(t, time.Minute, func() error { return hasLeaders(admin, topic, partitions) })
}

// deleteTopic keeps a cluster that many runs share from filling up. That it fails matters to no test.
func (b *Broker) deleteTopic(t testing.TB, name string) {
	admin, done := b.admin(t)
	defer done()
	_ = admin.DeleteTopic(name)
}

func hasLeaders(admin sarama.ClusterAdmin, topic string, partitions int32) error {
	found, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	leaders := 0
	for _, p := range found[0].Partitions {
		if p.Err == sarama.ErrNoError && p.Leader >= 0 {
			leaders++
		}
	}
	if leaders != int(partitions) {
		return fmt.Errorf("topic %s: %d of %d partitions have a leader", topic, leaders, partitions)
	}
	return nil
}

// Produce sends the messages and returns when all in-sync replicas have acknowledged each of them. A message goes to
// the partition that it names.
func (b *Broker) Produce(t testing.TB, msgs ...*sarama.ProducerMessage) {
	t.Helper()
	if len(msgs) == 0 {
		return
	}
	cfg := config()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Return.Successes = true
	cfg.Metadata.Retry.Max = 40 // 10 s: brokers of a real cluster learn of a topic one after the other
	producer, err := sarama.NewSyncProducer(b.Addrs, cfg)
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
	defer producer.Close()
	if err := producer.SendMessages(msgs); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// End answers with the offset behind the last record of a partition.
func (b *Broker) End(t testing.TB, topic string, partition int32) int64 {
	t.Helper()
	client, err := sarama.NewClient(b.Addrs, config())
	if err != nil {
		t.Fatalf("%s: %v", b.Kind, err)
	}
	defer func() { _ = client.Close() }()
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		t.Fatalf("end of %s[%d]: %v", topic, partition, err)
	}
	return end
}

// Committed answers with the group's committed offset of each partition of the topic, -1 where there is none.
func (b *Broker) Committed(t testing.TB, group, topic string) map[int32]int64 {
	t.Helper()
	admin, done := b.admin(t)
	defer done()
	found, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		t.Fatalf("committed offsets of %s: %v", group, err)
	}
	var partitions []int32
	for _, p := range found[0].Partitions {
		partitions = append(partitions, p.ID)
	}
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		offsets, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		t.Fatalf("committed offsets of %s: %v", group, err)
	}
	committed := map[int32]int64{}
	for _, p := range partitions {
		committed[p] = offsetIn(offsets, topic, p)
	}
	return committed
}

// Commit commits an offset for a group that has no members, as a tool does.
func (b *Broker) Commit(t testing.TB, group, topic string, partition int32, offset int64) {
	t.Helper()
	client, err := sarama.NewClient(b.Addrs, config())
	if err != nil {
		t.Fatalf("%s: %v", b.Kind, err)
	}
	defer func() { _ = client.Close() }()
	coordinator, err := client.Coordinator(group)
	if err != nil {
		t.Fatalf("commit an offset of %s: %v", group, err)
	}
	req := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: group,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined, RetentionTime: -1}
	req.AddBlock(topic, partition, offset, 0, "")
	res, err := coordinator.CommitOffset(req)
	if err != nil {
		t.Fatalf("commit an offset of %s: %v", group, err)
	}
	if code := res.Errors[topic][partition]; code != sarama.ErrNoError {
		t.Fatalf("commit an offset of %s: %v", group, code)
	}
}

func offsetIn(r *sarama.OffsetFetchResponse, topic string, partition int32) int64 {
	block := r.GetBlock(topic, partition)
	if block == nil || block.Err != sarama.ErrNoError {
		return -1
	}
	return block.Offset
}

// Group answers with a unique name for a consumer group.
func Group(t testing.TB) string { return unique(t) }

// unique is the test's name, as far as Kafka allows it, and 40 random bits.
func unique(t testing.TB) string {
	kept := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, t.Name())
	return kept[:min(len(kept), 100)] + "-" + strings.ToLower(rand.Text()[:8])
}

// admin opens a client and answers with what closes it.
func (b *Broker) admin(t testing.TB) (admin sarama.ClusterAdmin, done func()) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(b.Addrs, config())
	if err != nil {
		t.Fatalf("%s: %v", b.Kind, err)
	}
	return admin, func() { _ = admin.Close() }
}

// config is that of the clients which act for a test beside the code that it tests.
func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-serverstest"
	cfg.Version = sarama.V3_6_0_0
	return cfg
}

// eventually asks f until it answers nil, and fails the test after d.
func eventually(t testing.TB, d time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", d, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
