package outboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// Harness is what the suite runs on.
type Harness struct {
	// Database is what is tested, on a schema with the tables of schema.Outbox in its search_path.
	Database outbox.Database
	// Write writes events in a transaction, calls before, and commits unless that returns an error, which is returned.
	Write func(ctx context.Context, before func() error, events ...outbox.Event) error
	// Exec runs a statement outside of any transaction of the suite. Value selects a number.
	Exec  func(ctx context.Context, sql string) error
	Value func(ctx context.Context, sql string) (int64, error)
	// Brokers are Kafka's. Topic creates a topic with settings, such as max.message.bytes, and returns its name.
	Brokers []string
	Topic   func(t testing.TB, partitions int32, settings map[string]string) string
}

// Run runs the suite in one mode. Open is called for each case, with a schema and topics of its own.
func Run(t *testing.T, mode outbox.Mode, open func(t testing.TB) Harness) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newBench(t, mode, open(t)))
		})
	}
}

var cases = []struct {
	name string
	run  func(b *bench)
}{
	{"1 every byte", (*bench).everyByte},
	{"2 committed and rolled back", (*bench).committedOnly},
	{"3 order", (*bench).order},
	{"4 poison", (*bench).poison},
	{"4 unknown topic", (*bench).unknownTopic},
	{"5 Kafka away", (*bench).kafkaAway},
	{"6 connections break", (*bench).connectionsBreak},
	{"7 stop", (*bench).stop},
	{"8 row held by somebody else", (*bench).heldRow},
	{"9 other mode", (*bench).otherMode},
	{"10 wake-up", (*bench).wakeUp},
}

// bench is a case at work.
type bench struct {
	Harness
	t    testing.TB
	mode outbox.Mode
}

func newBench(t testing.TB, mode outbox.Mode, h Harness) *bench {
	return &bench{Harness: h, t: t, mode: mode}
}

func (b *bench) ctx() context.Context { return b.t.Context() }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) value(sql string) int64 {
	b.t.Helper()
	n, err := b.Value(b.ctx(), sql)
	b.must(err)
	return n
}

// patience is long enough for a machine on which much else runs.
const patience = 40 * time.Second

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// write writes events in a transaction.
func (b *bench) write(events ...outbox.Event) {
	b.t.Helper()
	b.must(b.Write(b.ctx(), func() error { return nil }, events...))
}

// config is a relay's.
func (b *bench) config() relay.Config {
	return relay.Config{Database: b.Database, Brokers: b.Brokers, Mode: b.mode, Keep: -1}
}

// runningRelay is a relay that runs.
type runningRelay struct {
	*relay.Relay
	bench *bench
	end   context.CancelFunc
	ended chan error
}

// start starts a relay. It is stopped when the test ends.
func (b *bench) start(cfg relay.Config) *runningRelay {
	b.t.Helper()
	r, err := relay.New(cfg)
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	run := &runningRelay{r, b, cancel, make(chan error, 1)}
	go func() { run.ended <- r.Run(ctx) }()
	b.t.Cleanup(func() { run.stop() })
	return run
}

// stop ends the relay and returns Run's error.
func (r *runningRelay) stop() {
	r.bench.t.Helper()
	r.end()
	select {
	case err := <-r.ended:
		if err != nil {
			r.bench.t.Errorf("Run() = %v", err)
		}
		r.ended <- nil
	case <-time.After(patience):
		r.bench.t.Errorf("Run has not returned %v after its context ended", patience)
	}
}

// awaitEmpty waits until no row waits or is in work.
func (b *bench) awaitEmpty() {
	b.t.Helper()
	b.eventually("nothing is left to be sent", func() bool {
		return b.value("select count(*) from outbox_event where status in ('PENDING', 'PUBLISHING')") == 0
	})
}

// records returns all that is in a topic now, by partition and offset.
func (b *bench) records(topic string) (list []*sarama.ConsumerMessage) {
	b.t.Helper()
	list, err := Records(b.Brokers, topic)
	b.must(err)
	return list
}

// Records returns what is in a topic now, by partition and offset. edit is for clusters that ask for TLS or SASL.
func Records(brokers []string, topic string, edit ...func(*sarama.Config)) (list []*sarama.ConsumerMessage, err error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Consumer.MaxWaitTime = 50 * time.Millisecond
	for _, f := range edit {
		f(cfg)
	}
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		part, err := readTo(consumer, topic, p, end)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return list, nil
}

func readTo(consumer sarama.Consumer, topic string, partition int32, end int64) (list []*sarama.ConsumerMessage,
	err error) {
	if end == 0 {
		return nil, nil
	}
	claim, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	for msg := range claim.Messages() {
		list = append(list, msg)
		if msg.Offset >= end-1 {
			break
		}
	}
	return list, nil
}

// IDOf returns the header event-id.
func IDOf(msg *sarama.ConsumerMessage) string {
	for _, h := range msg.Headers {
		if string(h.Key) == outbox.IDHeader {
			return string(h.Value)
		}
	}
	return ""
}

// FirstCopies returns the ids of each key in the order of the log, each once, and how many records were repetitions.
func FirstCopies(list []*sarama.ConsumerMessage) (byKey map[string][]string, repeated int) {
	byKey = map[string][]string{}
	seen := map[string]bool{}
	for _, msg := range list {
		id := IDOf(msg)
		if seen[id] {
			repeated++
			continue
		}
		seen[id] = true
		byKey[string(msg.Key)] = append(byKey[string(msg.Key)], id)
	}
	return byKey, repeated
}
