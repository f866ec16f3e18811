package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func deleteRecords(t *testing.T, b *serverstest.Broker, topic string, before int64) {
	t.Helper()
	admin(t, b, func(a sarama.ClusterAdmin) error { return a.DeleteRecords(topic, map[int32]int64{0: before}) })
}

// A group that has finished nothing yet has a position all the same: what the retention deletes before it is handled is
// missed.
func TestStartIsCommitted(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 1, 20)...)
				deleteRecords(t, b, topic, 2)
				fails := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return errHandler })
				told := make(chan int64, 10)
				cfg := config(b, group, topic, fails)
				cfg.Rebalance = rebalance
				cfg.Hooks.OutOfRange = func(_ string, _ int32, offset int64) { told <- offset }
				m := start(t, cfg)
				eventually(t, "the start is committed", func() bool { return b.Committed(t, group, topic)[0] == 2 })
				must(t, m.stop())
				if len(told) > 0 {
					t.Errorf("nothing was committed, and it is out of range: %d", <-told)
				}
				deleteRecords(t, b, topic, 10)

				if rebalance == consumer.Eager {
					failing := editTopic(config(b, group, topic, nop), topic,
						func(tp *consumer.Topic) { tp.OutOfRange = consumer.Fail })
					m := start(t, failing)
					receive(t, m.done)
					if !errors.Is(m.err, consumer.ErrOutOfRange) ||
						!strings.Contains(m.err.Error(), "committed at 2, its log has 10 to 20") {
						t.Errorf("Run returned %v", m.err)
					}
				}
				var s seen
				var log lines
				cfg.Topics, cfg.Logger = map[string]consumer.Topic{topic: {Handler: &s}}, log.logger()
				m = start(t, cfg)
				if offset := receive(t, told); offset != 10 {
					t.Errorf("the hook was told %d", offset)
				}
				eventually(t, "the rest is handled", func() bool { return s.len() == 10 })
				if n := m.Status().Totals.Topics[0].OutOfRange; n != 1 || !strings.Contains(log.String(), "committed=2") {
					t.Errorf("it was counted %d times; %s", n, log.String())
				}
				must(t, m.stop())
			})
		})
	}
}

// FromNewest and FromTime commit where they begin before Ready says that nothing is missed from now on: a crash right
// after it loses nothing.
func TestStartIsCommittedAtOnce(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]consumer.Start{"newest": consumer.FromNewest(),
		"time": consumer.FromTime(time.Now().Add(time.Hour))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 7)
			cfg := editTopic(config(b, group, topic, nop), topic, func(tp *consumer.Topic) { tp.Start = from })
			cfg.Sarama = func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Interval = time.Hour }
			m := start(t, cfg)
			eventually(t, "it is ready", m.Ready)
			if c := b.Committed(t, group, topic); c[0] != 7 || c[1] != 7 {
				t.Errorf("committed %v", c)
			}
			must(t, m.stop())
		})
	}
}

// An offset beyond a log that is empty now is told at once, not with the next record.
func TestOutOfRangeOfAnEmptyLog(t *testing.T) {
	t.Parallel()
	for _, policy := range []consumer.OutOfRange{consumer.ToOldest, consumer.ToNewest} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 1, 3)...)
				var s seen
				told := make(chan int64, 10)
				cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.OutOfRange = policy })
				cfg.Hooks.OutOfRange = func(_ string, _ int32, offset int64) { told <- offset }
				m := start(t, cfg)
				eventually(t, "three are handled", func() bool { return s.len() == 3 })
				must(t, m.stop())
				b.Produce(t, records(topic, 1, 2)...)
				deleteRecords(t, b, topic, 5)
				m = start(t, cfg)
				if offset := receive(t, told); offset != 5 {
					t.Errorf("the hook was told %d", offset)
				}
				if n := m.Status().Totals.Topics[0].OutOfRange; n != 1 {
					t.Errorf("it was counted %d times", n)
				}
				eventually(t, "that is committed", func() bool { return b.Committed(t, group, topic)[0] == 5 })
				must(t, m.stop())
				m = start(t, cfg)
				eventually(t, "it runs", m.Ready)
				must(t, m.stop())
				if len(told) > 0 {
					t.Error("it is told again after a restart")
				}
			})
		})
	}
}

// Committed offsets at both ends of the log are in range.
func TestInRange(t *testing.T) {
	t.Parallel()
	for _, policy := range []consumer.OutOfRange{consumer.ToOldest, consumer.ToNewest, consumer.Fail} {
		for committed, want := range map[int64]int{4: 6, 7: 3, 10: 0} { // the log has 4 to 9
			t.Run(fmt.Sprintf("%d at %d", policy, committed), func(t *testing.T) {
				t.Parallel()
				b, topic, group := backlog(t, 1, 10)
				m := start(t, config(b, group, topic, nop))
				eventually(t, "the group exists", func() bool { return b.Committed(t, group, topic)[0] == 10 })
				must(t, m.stop())
				commit(t, b, group, topic, committed)
				deleteRecords(t, b, topic, 4)
				var s seen
				var told atomic.Int32
				cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.OutOfRange = policy })
				cfg.Hooks.OutOfRange = func(string, int32, int64) { told.Add(1) }
				m = start(t, cfg)
				eventually(t, "it is ready", m.Ready)
				eventually(t, "what is left is handled", func() bool { return s.len() == want })
				must(t, m.stop())
				if told.Load() != 0 || s.len() != want || b.Committed(t, group, topic)[0] != 10 {
					t.Errorf("told %d times, %d handled, committed %v", told.Load(), s.len(), b.Committed(t, group, topic))
				}
			})
		}
	}
}

// A partition that is added to the topic is new: a group that began at the newest message reads it from its beginning,
// whether it runs meanwhile or not.
func TestAddedPartitions(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 2), serverstest.Group(t)
				b.Produce(t, records(topic, 2, 5)...)
				var s seen
				cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.Start = consumer.FromNewest() })
				cfg.Sarama = func(c *sarama.Config) {
					quick(c)
					c.Metadata.RefreshFrequency = 3 * time.Second
				}
				m := start(t, cfg)
				eventually(t, "it is ready", m.Ready)
				for _, partitions := range []int32{3, 5} {
					if !running {
						must(t, m.stop())
					}
					b.Grow(t, topic, partitions)
					b.Produce(t, records(topic, partitions, 10)[20:]...) // the first two have nothing new
					if !running {
						m = start(t, cfg)
					}
					want := map[int32]int{3: 10, 5: 10 + 30}[partitions]
					eventually(t, "all of the new partitions is handled", func() bool { return s.len() == want })
				}
				must(t, m.stop())
				for _, msg := range s.all() {
					if msg.Partition < 2 {
						t.Fatalf("%v was there before", msg)
					}
				}
			})
		})
	}
}

// Members that start side by side do not take each other's partitions for added ones.
func TestNewestOfSeveralMembers(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 6), serverstest.Group(t)
		b.Produce(t, records(topic, 6, 5)...)
		var s seen
		cfg := editTopic(config(b, group, topic, &s), topic, func(tp *consumer.Topic) { tp.Start = consumer.FromNewest() })
		cfg.Sarama = quick
		members := []*member{start(t, cfg), start(t, cfg), start(t, cfg)}
		eventually(t, "they share the partitions", func() bool { return shared(members, 6) })
		b.Produce(t, records(topic, 6, 1)...)
		eventually(t, "what is new is handled", func() bool { return s.len() >= 6 })
		for _, m := range members {
			must(t, m.stop())
		}
		if s.len() != 6 {
			t.Errorf("%d were handled", s.len())
		}
	})
}
