package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/relay"
)

// partitions are those of the records of a topic, by event.
func (b *bench) partitions(topic string) map[string]int32 {
	b.T.Helper()
	list, err := outboxtest.Records(b.b.Addrs, topic)
	must(b.T, err)
	at := map[string]int32{}
	for _, msg := range list {
		at[outboxtest.IDOf(msg)] = msg.Partition
	}
	return at
}

// The same keys go to the same partitions as by the clients that share the topic.
func TestPartitioners(t *testing.T) {
	t.Parallel()
	for p, of := range map[relay.Partitioner]sarama.PartitionerConstructor{
		relay.HashPartitioner: sarama.NewHashPartitioner, relay.Murmur2Partitioner: sarama.NewMurmur2Partitioner,
		relay.CRC32Partitioner: sarama.NewConsistentCRCHashPartitioner,
	} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 7)
			own := b.b.Topic(t, 7) // a topic with a partitioner of its own
			var events []outbox.Event
			for i := range 50 {
				key := fmt.Sprint("key ", i)
				events = append(events, outbox.Event{ID: key, Topic: b.topic, Key: []byte(key)},
					outbox.Event{ID: key, Topic: own, Key: []byte(key)})
			}
			must(t, b.write(t.Context(), tabletest.Commit, events...))
			cfg := b.config(outbox.SinglePhase)
			cfg.Partitioner, cfg.Partitioners = relay.HashPartitioner, map[string]relay.Partitioner{own: p}
			start(t, cfg)
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			for topic, of := range map[string]sarama.PartitionerConstructor{b.topic: sarama.NewHashPartitioner, own: of} {
				for key, got := range b.partitions(topic) {
					want, err := of(topic).Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(key)}, 7)
					must(t, err)
					if got != want {
						t.Errorf("%s is in partition %d, want %d", key, got, want)
					}
				}
			}
		})
	}
}

// An event goes to the partition that it names, with or without a key, and to that of its key if the topic has none of
// that number.
func TestPartitionOfAnEvent(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 5)
			want := map[string]int32{}
			ofKey, err := sarama.NewHashPartitioner(b.topic).Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder("k")},
				5)
			must(t, err)
			var events []outbox.Event
			add := func(id string, key []byte, partition, place int32) {
				events = append(events, outbox.Event{ID: id, Topic: b.topic, Key: key, Partition: &partition})
				want[id] = place
			}
			for p := range int32(5) {
				add(fmt.Sprint("key ", p), []byte("k"), p, p)
				add(fmt.Sprint("none ", p), nil, p, p)
			}
			add("beyond", []byte("k"), 5, ofKey)
			must(t, b.write(t.Context(), tabletest.Commit, events...))
			start(t, b.config(mode))
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			if got := b.partitions(b.topic); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("they are in %v, want %v", got, want)
			}
		})
	}
}

// Events of one key that go to different partitions are sent one after the other: as long as the first is not in Kafka,
// the others wait.
func TestPartitionsOfAKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, 3)
	var order []string
	refusals := 0
	b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
		if contains(req, "first") && refusals < 3 {
			refusals++
			return codeNotEnoughReplicas, true
		}
		for _, id := range []string{"first", "second", "third"} {
			if contains(req, id) {
				order = append(order, id)
			}
		}
		return 0, false
	}))
	var events []outbox.Event
	for i, id := range []string{"first", "second", "third"} {
		events = append(events, outbox.Event{ID: id, Topic: b.topic, Key: []byte("k"), Partition: new(int32(i))})
	}
	must(t, b.write(t.Context(), tabletest.Commit, events...))
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if !slices.Equal(order, []string{"first", "second", "third"}) {
		t.Errorf("Kafka got %v", order)
	}
}

// A partition that there cannot be, inserted by hand, blocks its row.
func TestPartitionBelowZero(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.MustExec("insert into outbox_event (event_id, topic, partition) values ('1', $1::text, -1)", b.topic)
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "it is blocked", func() bool { return b.rows("status = 'BLOCKED'") == 1 })
	if text := tabletest.Value[string](b.Fixture, "select last_error from outbox_event"); !strings.Contains(text,
		"partition is -1") {
		t.Error(text)
	}
}

// A table of before the column partition: Run says what to run.
func TestTableOfAnOldVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.MustExec("alter table outbox_event drop column partition")
	r, err := relay.New(b.config(outbox.SinglePhase))
	must(t, err)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "einmal schema print -db postgres outbox") {
		t.Errorf("Run() = %v", err)
	}
}

// A row whose partition takes nothing now holds up its key, also what goes to another partition.
func TestKeyWaitsForItsOtherPartition(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			var refused atomic.Int64
			var takes atomic.Bool
			b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
				refuse := !takes.Load() && contains(req, "the first")
				if refuse {
					refused.Add(1)
				}
				return codeNotEnoughReplicas, refuse
			}))
			must(t, b.write(t.Context(), tabletest.Commit,
				outbox.Event{ID: "1", Topic: b.topic, Key: []byte("k"), Value: []byte("the first"), Partition: new(int32(0))},
				outbox.Event{ID: "2", Topic: b.topic, Key: []byte("k"), Partition: new(int32(1))}))
			start(t, b.config(mode))
			other := b.b.Topic(t, 1)
			eventually(t, "the first is tried again and again", func() bool { // the relay goes on with what can be sent
				must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{Topic: other, Key: []byte(outbox.NewID())}))
				return refused.Load() >= 16
			})
			if got := b.topicHas(); got != "" {
				t.Errorf("the topic has %s", got)
			}
			takes.Store(true)
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			if got := b.topicHas(); !strings.Contains(got, "1") || !strings.Contains(got, "2") {
				t.Errorf("the topic has %s", got)
			}
		})
	}
}
