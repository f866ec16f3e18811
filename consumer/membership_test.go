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

// quick makes a group that moves fast, and sees changes of topics within a second.
func quick(c *sarama.Config) {
	c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	c.Metadata.RefreshFrequency = 300 * time.Millisecond
}

// each of the ways in which partitions move.
var rebalances = []consumer.Rebalance{consumer.Eager, consumer.ToCooperative, consumer.Cooperative}

// Members come and go under load: 1 -> 4 -> 1. Nothing is lost, and what was in work is finished before it moves, so
// nothing comes twice.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 6), serverstest.Group(t)
				const n = 150
				b.Produce(t, records(topic, 6, n)...)
				var s seen
				cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
					time.Sleep(5 * time.Millisecond)
					return s.Handle(ctx, msg)
				}))
				cfg.Sarama, cfg.Rebalance = quick, rebalance
				members := []*member{start(t, cfg)}
				for k := 2; k <= 4; k++ {
					members = append(members, start(t, cfg))
					eventually(t, fmt.Sprint(k, " members share the partitions"), func() bool { return shared(members, 6) })
				}
				for len(members) > 1 {
					if err := members[0].stop(); err != nil {
						t.Fatal(err)
					}
					members = members[1:]
					eventually(t, "the others take over", func() bool { return shared(members, 6) })
				}
				eventually(t, "all are handled", func() bool { return s.len() >= 6*n })
				if err := members[0].stop(); err != nil {
					t.Fatal(err)
				}
				if s.len() != 6*n {
					t.Errorf("%d were handled, want %d: a drain did not finish or commit what was in work", s.len(), 6*n)
				}
				for p, offset := range b.Committed(t, group, topic) {
					if offset != n {
						t.Errorf("partition %d: committed %d, want %d", p, offset, n)
					}
				}
			})
		})
	}
}

// shared reports whether all partitions are held, each once, and no member is without.
func shared(members []*member, partitions int) bool {
	held := map[int32]int{}
	for _, m := range members {
		ps := m.Status().Partitions
		if len(ps) == 0 {
			return false
		}
		for _, p := range ps {
			held[p.Partition]++
		}
	}
	for _, n := range held {
		if n != 1 {
			return false
		}
	}
	return len(held) == partitions
}

// A group moves from Eager to Cooperative in two rolling restarts, and never stops.
func TestMigrationToCooperative(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 4), serverstest.Group(t)
		var s seen
		cfg := config(b, group, topic, &s)
		cfg.Sarama = quick
		members := []*member{start(t, cfg), start(t, cfg)}
		want := 0
		for _, rebalance := range rebalances {
			cfg.Rebalance = rebalance
			for i := range members {
				_ = members[i].stop()
				members[i] = start(t, cfg)
				eventually(t, "both share the partitions", func() bool { return shared(members, 4) })
				b.Produce(t, records(topic, 4, 1)...)
				want += 4
				eventually(t, "they consume", func() bool { return s.len() == want })
			}
		}
	})
}

// New partitions are consumed, in every mode.
func TestGrowthIsNoticed(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				var s seen
				cfg := config(b, group, topic, &s)
				cfg.Sarama, cfg.Rebalance = quick, rebalance
				members := []*member{start(t, cfg)}
				eventually(t, "it runs", func() bool { return shared(members, 1) })
				b.Grow(t, topic, 3)
				eventually(t, "all partitions are held", func() bool { return shared(members, 3) })
				b.Produce(t, records(topic, 3, 1)...)
				eventually(t, "all are handled", func() bool { return s.len() == 3 })
			})
		})
	}
}

// A static leader that has restarted is not told that it leads (KAFKA-13435); growth is noticed all the same.
func TestGrowthIsNoticedAfterTheStaticLeaderRestarted(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		var s seen
		cfg := config(b, group, topic, &s)
		cfg.Sarama = quick
		var members []*member
		for _, id := range []string{"a", "b"} {
			cfg.InstanceID = id
			members = append(members, start(t, cfg))
		}
		eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		for i, id := range []string{"a", "b"} { // one of them is the leader
			cfg.InstanceID = id
			if err := members[i].stop(); err != nil {
				t.Fatal(err)
			}
			members[i] = start(t, cfg)
			eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		}
		b.Grow(t, topic, 4)
		eventually(t, "all partitions are held", func() bool { return shared(members, 4) })
	})
}

func admin(t *testing.T, b *serverstest.Broker, f func(sarama.ClusterAdmin) error) {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	a, err := sarama.NewClusterAdmin(b.Addrs, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if err := f(a); err != nil {
		t.Fatal(err)
	}
}

// A static member that restarts soon keeps its partitions: the others see nothing. With LeaveOnStop they take over at
// once.
func TestStaticMembership(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		var s seen
		cfg := config(b, group, topic, &s)
		cfg.Sarama = quick
		var revoked atomic.Int32
		other := cfg
		other.InstanceID = "other"
		other.Hooks.Revoked = func(string, int32, time.Duration) { revoked.Add(1) }
		cfg.InstanceID = "this"
		members := []*member{start(t, other), start(t, cfg)}
		eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		before := revoked.Load()
		if err := members[1].stop(); err != nil {
			t.Fatal(err)
		}
		members[1] = start(t, cfg)
		eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		if n := revoked.Load() - before; n != 0 {
			t.Errorf("the restart took %d partitions from the other member", n)
		}
		if err := members[1].stop(); err != nil {
			t.Fatal(err)
		}
		cfg.LeaveOnStop = true
		members[1] = start(t, cfg)
		eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		if err := members[1].stop(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, "the other takes over", func() bool { return shared(members[:1], 2) })
		if took := time.Since(began); took > 18*time.Second {
			t.Errorf("the other took over after %v: that is the session time-out, not the leave", took)
		}
	})
}

// Two processes with one instance id: the older one ends, and says why.
func TestInstanceIDTwice(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		cfg := config(b, group, topic, &seen{})
		cfg.Sarama, cfg.InstanceID = quick, "same"
		older := start(t, cfg)
		eventually(t, "it runs", func() bool { return shared([]*member{older}, 1) })
		newer := start(t, cfg)
		receive(t, older.done)
		if !errors.Is(older.err, sarama.ErrFencedInstancedId) ||
			!strings.Contains(older.err.Error(), "instance id of its own") {
			t.Errorf("Run returned %v", older.err)
		}
		eventually(t, "the newer one consumes", func() bool { return shared([]*member{newer}, 1) })
	})
}

// Abort rolls back what is in work at once, and Run returns without an error.
func TestAbort(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 2)
	h := newBlocking(true)
	cfg := config(b, group, topic, h)
	cfg.DrainTimeout = time.Hour
	m := start(t, cfg)
	<-h.started
	m.cancel()
	eventually(t, "it drains", func() bool { return m.Status().Phase == consumer.Draining })
	began := time.Now()
	m.Abort()
	m.Abort()
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if c := b.Committed(t, group, topic); c[0] > 0 {
		t.Errorf("committed %v", c)
	}

	m = start(t, cfg) // without the end of ctx before
	<-h.started
	m.Abort()
	<-m.done
	if m.err != nil {
		t.Error(m.err)
	}
}

// A session time-out that the brokers do not allow ends Run with the setting and their bounds: asking again would not
// help.
func TestSessionTimeoutThatTheBrokersRefuse(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		cfg := config(b, serverstest.Group(t), b.Topic(t, 1), nop)
		cfg.Sarama = func(c *sarama.Config) { c.Consumer.Group.Session.Timeout = 24 * time.Hour }
		m := start(t, cfg)
		receive(t, m.done)
		if !errors.Is(m.err, sarama.ErrInvalidSessionTimeout) {
			t.Fatalf("Run returned %v", m.err)
		}
		says(t, m.err, "Consumer.Group.Session.Timeout is 24h0m0s in Config.Sarama", "group.min.session.timeout.ms is ",
			"group.max.session.timeout.ms is ")
	})
}
