package consumer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func editTopic(cfg consumer.Config, topic string, edit func(*consumer.Topic)) consumer.Config {
	tp := cfg.Topics[topic]
	edit(&tp)
	cfg.Topics[topic] = tp
	return cfg
}

// A new group begins where the user said, and what is produced while no member runs is not skipped.
func TestStart(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		start consumer.Start
		want  int64
	}{
		"oldest":       {consumer.Start{}, 0},
		"newest":       {consumer.FromNewest(), 10},
		"time":         {consumer.FromTime(at.Add(5 * time.Second)), 5},
		"time to come": {consumer.FromTime(at.Add(24 * time.Hour)), 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				msgs := records(topic, 1, 10)
				for i, m := range msgs {
					m.Timestamp = at.Add(time.Duration(i) * time.Second)
				}
				b.Produce(t, msgs...)
				var s seen
				cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.Start = test.start })
				m := start(t, cfg)
				eventually(t, "it runs", m.Ready)
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				b.Produce(t, records(topic, 1, 3)...) // while no member runs
				m = start(t, cfg)
				eventually(t, "all are handled", func() bool { return s.len() >= int(13-test.want) })
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				if s.len() != int(13-test.want) || s.all()[0].Offset != test.want {
					t.Errorf("%d were handled from offset %d on, want %d from %d on", s.len(), s.all()[0].Offset, 13-test.want,
						test.want)
				}
			})
		})
	}
}

// A committed offset that the log does not have any more is treated as the user said, and told.
func TestOutOfRange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy consumer.OutOfRange
		first  int64 // that is handled
		skips  string
	}{"oldest": {consumer.ToOldest, 6, "skipped=0"}, "newest": {consumer.ToNewest, 10, "skipped=4"},
		"fail": {consumer.Fail, -1, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 1, 3)...)
				var s seen
				told := make(chan int64, 10)
				cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.OutOfRange = test.policy })
				cfg.Hooks.OutOfRange = func(_ string, _ int32, offset int64) { told <- offset }
				m := start(t, cfg)
				eventually(t, "three are handled", func() bool { return s.len() == 3 })
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				b.Produce(t, records(topic, 1, 7)...)
				admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteRecords(topic, map[int32]int64{0: 6}) })
				var log lines
				cfg.Logger = log.logger()
				m = start(t, cfg)
				if test.policy == consumer.Fail {
					<-m.done
					if !errors.Is(m.err, consumer.ErrOutOfRange) ||
						!strings.Contains(m.err.Error(), "committed at 3, its log has 6 to 10") {
						t.Errorf("Run returned %v", m.err)
					}
					return
				}
				if offset := receive(t, told); offset != test.first { // before anything more comes
					t.Errorf("the hook was told %d", offset)
				}
				if n := m.Status().Totals.Topics[0].OutOfRange; n != 1 {
					t.Errorf("it was counted %d times", n)
				}
				if text := log.String(); strings.Count(text, "out of range") != 1 || !strings.Contains(text, "committed=3") ||
					!strings.Contains(text, test.skips) {
					t.Errorf("the log has %s", text)
				}
				eventually(t, "it runs", m.Ready)
				b.Produce(t, records(topic, 1, 1)...)
				eventually(t, "it goes on", func() bool { return s.len() == 3+int(11-test.first) })
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				if first := s.all()[3].Offset; first != test.first {
					t.Errorf("it went on at %d, want %d", first, test.first)
				}
				if c := b.Committed(t, group, topic); c[0] != 11 {
					t.Errorf("committed %v", c)
				}
			})
		})
	}
}

// recreate deletes a topic and creates it again.
func recreate(t *testing.T, b *serverstest.Broker, topic string, partitions int32) {
	t.Helper()
	admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteTopic(topic) })
	eventually(t, "the topic is there again", func() bool { return create(t, b, topic, partitions) == nil })
}

func create(t *testing.T, b *serverstest.Broker, topic string, partitions int32) (err error) {
	t.Helper()
	admin(t, b, func(a sarama.ClusterAdmin) error {
		err = a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
		return nil
	})
	return err
}

// A topic that is created again while it is consumed is read from its start, although the old offset exists in it too.
func TestTopicCreatedAgain(t *testing.T) {
	t.Parallel()
	for _, rebalance := range []consumer.Rebalance{consumer.Eager, consumer.Cooperative} {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 1, 5)...)
				var s seen
				cfg := config(b, group, topic, &s)
				cfg.Sarama, cfg.Rebalance = quick, rebalance
				told := make(chan int64, 10)
				cfg.Hooks.OutOfRange = func(_ string, _ int32, offset int64) { told <- offset }
				m := start(t, cfg)
				eventually(t, "the old topic is handled", func() bool { return s.len() == 5 })
				before := s.all()[0].TopicID
				recreate(t, b, topic, 1)
				eventually(t, "the new topic takes records", func() bool { return tryProduce(b, records(topic, 1, 1)) == nil })
				b.Produce(t, records(topic, 1, 19)...)
				all := b.End(t, topic, 0) // a try that failed may have left a record
				eventually(t, "all of the new topic are handled", func() bool {
					offsets := map[int64]bool{}
					for _, msg := range s.all() {
						if msg.TopicID != before {
							offsets[msg.Offset] = true
						}
					}
					return len(offsets) == int(all)
				})
				eventually(t, "the hook is called", func() bool { return len(told) > 0 })
				if offset := <-told; offset != 0 {
					t.Errorf("the hook says that it starts at %d", offset)
				}
				if totals := m.Status().Totals.Topics; len(totals) != 1 || totals[0].OutOfRange < 1 {
					t.Errorf("totals %+v", totals)
				}
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				if c := b.Committed(t, group, topic); c[0] != all || all < 20 {
					t.Errorf("committed %v, want %d, at least 20", c, all)
				}
			})
		})
	}
}

func tryProduce(b *serverstest.Broker, msgs []*sarama.ProducerMessage) error {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(b.Addrs, c)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	return p.SendMessages(msgs)
}

// A topic that is deleted stops alone; when it is there again, it is consumed.
func TestTopicThatDisappears(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		stays, goes, group := b.Topic(t, 1), b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(stays, 1, 1)...)
		b.Produce(t, records(goes, 1, 1)...)
		var s seen
		cfg := config(b, group, stays, &s)
		cfg.Topics[goes] = consumer.Topic{Handler: &s}
		cfg.Sarama = quick
		m := start(t, cfg)
		eventually(t, "both are handled", func() bool { return s.len() == 2 })
		admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteTopic(goes) })
		eventually(t, "one is left", func() bool {
			p := m.Status().Partitions
			return len(p) == 1 && p[0].Topic == stays
		})
		b.Produce(t, records(stays, 1, 1)...)
		eventually(t, "the other goes on", func() bool { return s.len() == 3 })
		eventually(t, "the topic is there again", func() bool { return create(t, b, goes, 1) == nil })
		eventually(t, "both are held", func() bool { return len(m.Status().Partitions) == 2 })
		eventually(t, "it takes records", func() bool { return tryProduce(b, records(goes, 1, 1)) == nil })
		eventually(t, "it is handled", func() bool { return s.len() >= 4 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Cooperative mode refuses positions that it could not keep.
func TestPositionsNeedEager(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(consumer.Config{
		Brokers: []string{"localhost:9092"}, Group: "g", Rebalance: consumer.Cooperative,
		Topics: map[string]consumer.Topic{
			"a": {Handler: nop, Start: consumer.FromNewest()},
			"b": {Handler: nop, OutOfRange: consumer.Fail},
			"c": {Handler: nop},
		},
	})
	if err == nil || strings.Count(err.Error(), "use Eager") != 2 || strings.Contains(err.Error(), `"c"`) {
		t.Errorf("New says %v", err)
	}
}
