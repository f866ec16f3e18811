package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// These tests and those in rules_*_test.go keep rules of docs/kafka-rules.md that no other test keeps.

// forever is a fault that stays until it is removed.
func forever(key kmsg.Key, err *kerr.Error) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1}
}

// Joins that fail and sessions that end soon make no hot loop, and are counted.
func TestShortSessionsBackOff(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.Heartbeat} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 2), serverstest.Group(t)
			f := forever(key, kerr.UnknownServerError)
			f.Group, f.TopLevel = group, true
			fault := b.Fake.Fault(f)
			times := make(chan time.Time, 1000)
			var s seen
			cfg := config(b, group, topic, &s)
			cfg.Hooks.ShortSession = func(int) { times <- time.Now() }
			m := start(t, cfg)
			began := receive(t, times)
			for range 5 {
				receive(t, times)
			}
			if took, least := time.Since(began), 750*time.Millisecond; took < least { // half of 100, 200, 400 and 800 ms
				t.Errorf("six short sessions took %v, want %v at least", took, least)
			}
			fault.Remove()
			b.Produce(t, records(topic, 2, 3)...)
			eventually(t, "all are handled", func() bool { return s.len() == 6 })
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A partition whose offsets no broker tells waits alone, and is told.
func TestUnreadablePartitionWaitsAlone(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 3)
			f := forever(kmsg.ListOffsets, kerr.UnknownServerError)
			f.Topic, f.Partitions = topic, []int32{0}
			fault := b.Fake.Fault(f)
			var s seen
			var log lines
			cfg := config(b, group, topic, &s)
			cfg.Rebalance, cfg.Logger = rebalance, log.logger()
			m := start(t, cfg)
			eventually(t, "the other partition is handled", func() bool { return s.len() == 3 && s.all()[0].Partition == 1 })
			eventually(t, "it is told", func() bool { return strings.Contains(log.String(), "reports an error") })
			fault.Remove()
			eventually(t, "all are handled", func() bool { return s.len() == 6 })
			fault = b.Fake.Fault(f)
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(log.String(), "joined the group"); n != 1 {
				t.Errorf("it took %d sessions", n)
			}

			m = start(t, cfg) // that waits does not keep a Consumer from stopping
			eventually(t, "it waits", func() bool { return fault.Hits() > 0 })
			if began := time.Now(); m.stop() != nil || time.Since(began) > 20*time.Second {
				t.Errorf("Run returned %v, after %v", m.err, time.Since(began))
			}
		})
	}
}

// A member that others make rebalance, by restarting one after the other, does not keep them waiting.
func TestOthersRebalancesAreFollowed(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	var sessions atomic.Int32
	cfg := config(b, group, topic, nop)
	cfg.Sarama = quick
	cfg.Hooks.Assigned = func(string, int32) { sessions.Add(1) }
	start(t, cfg)
	began := time.Now()
	for i := range int32(15) {
		eventually(t, "it is a member", func() bool { return sessions.Load() == i+1 })
		b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Group: group,
			Err: kerr.RebalanceInProgress})
	}
	if took := time.Since(began); took > 18*time.Second { // with the pauses of a member that is at fault: at least 20 s
		t.Errorf("14 rebalances took %v", took)
	}
}

// A group that the user may not read is refused, with what to do about it; nothing is asked for ever.
func TestGroupThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.JoinGroup} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Group: group, TopLevel: key == kmsg.JoinGroup,
				Err: kerr.GroupAuthorizationFailed, Count: -1})
			m := start(t, config(b, group, topic, &seen{}))
			receive(t, m.done)
			if !errors.Is(m.err, sarama.ErrGroupAuthorizationFailed) || !strings.Contains(m.err.Error(), "READ on the group") {
				t.Errorf("Run returned %v", m.err)
			}
		})
	}
}

// leaderless makes the cluster answer, until the returned func is called, that partition 0 of the topic has no leader,
// as a real one does when all its replicas are away.
func leaderless(t *testing.T, b *serverstest.Broker, topic string, partitions int32) (heal func()) {
	t.Helper()
	leaders := make([]int32, partitions)
	for p := range partitions {
		leaders[p] = b.Fake.LeaderFor(topic, p)
	}
	leaders[0] = -1
	return telling(t, b, topic, leaders)
}

// telling makes the cluster tell these leaders of the topic's partitions, until the returned func is called.
func telling(t *testing.T, b *serverstest.Broker, topic string, leaders []int32) (heal func()) {
	t.Helper()
	var id [16]byte
	admin(t, b, func(a sarama.ClusterAdmin) error {
		found, err := a.DescribeTopics([]string{topic})
		if err == nil {
			id = found[0].Uuid
		}
		return err
	})
	addrs := b.Fake.ListenAddrs()
	var healed atomic.Bool
	b.Fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if healed.Load() {
			return nil, nil, false //nolint:nilnil // not handled
		}
		b.Fake.KeepControl()
		res := req.ResponseKind().(*kmsg.MetadataResponse)
		for i, addr := range addrs {
			broker := kmsg.NewMetadataResponseBroker()
			host, port, _ := net.SplitHostPort(addr)
			n, _ := strconv.Atoi(port)
			broker.NodeID, broker.Host, broker.Port = int32(i), host, int32(n)
			res.Brokers = append(res.Brokers, broker)
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID = &topic, id
		for p, leader := range leaders {
			rp := kmsg.NewMetadataResponseTopicPartition()
			rp.Partition, rp.Leader = int32(p), leader
			if leader < 0 {
				rp.ErrorCode = kerr.LeaderNotAvailable.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
	return func() { healed.Store(true) }
}

// A partition without a leader waits alone, at the start too.
func TestLeaderlessPartitionWaitsAlone(t *testing.T) {
	t.Parallel()
	for _, rebalance := range rebalances {
		t.Run(rebalance.String(), func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 2, 3)
			heal := leaderless(t, b, topic, 2)
			var s seen
			var log lines
			cfg := config(b, group, topic, &s)
			cfg.Rebalance, cfg.Logger = rebalance, log.logger()
			m := start(t, cfg)
			eventually(t, "the other partition is handled", func() bool { return s.len() == 3 && s.all()[0].Partition == 1 })
			if !strings.Contains(log.String(), "partitions have no leader") {
				t.Error("the log does not tell")
			}
			eventually(t, "Status tells", func() bool {
				u := m.Status().Unread
				return len(u) == 1 && u[0].Topic == topic && u[0].Partition == 0 && u[0].Reason == "it has no leader"
			})
			heal()
			eventually(t, "all are handled", func() bool { return s.len() == 6 && len(m.Status().Unread) == 0 })
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			if strings.Count(log.String(), "joined the group") != 1 {
				t.Errorf("it took more than one session:\n%s", log.String())
			}
		})
	}
}

// A message that fails or panics is tried again where it is: the session goes on for all partitions.
func TestFailuresEndNoSession(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 3, 2)
	var assigned, attempts atomic.Int32
	var s seen
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		switch attempts.Store(max(attempts.Load(), int32(msg.Attempt))); {
		case msg.Partition == 0 && msg.Attempt < 10:
			return consumer.RetryAfter(20*time.Millisecond, errHandler)
		case msg.Partition == 1 && msg.Attempt == 1:
			panic("no")
		}
		return s.Handle(ctx, msg)
	}))
	cfg.Sarama = quick
	cfg.Hooks.Assigned = func(string, int32) { assigned.Add(1) }
	m := start(t, cfg)
	eventually(t, "all are handled", func() bool { return s.len() == 6 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if assigned.Load() != 3 || attempts.Load() != 10 {
		t.Errorf("partitions were assigned %d times, want 3; %d attempts, want 10", assigned.Load(), attempts.Load())
	}
}

// Handlers and hooks may call the Consumer, even end it.
func TestCallsFromWithin(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	var m *member
	ready, hooked := make(chan struct{}), make(chan consumer.Phase, 1)
	cfg := config(b, group, topic, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		<-ready
		if s := m.Status(); !m.Ready() || len(s.Partitions) != 1 {
			return fmt.Errorf("status %+v", s)
		}
		m.Abort()
		return nil
	}))
	cfg.Hooks.Assigned = func(string, int32) {
		<-ready
		hooked <- m.Status().Phase
		panic("a hook's panic stays where it is")
	}
	cfg.Hooks.Revoked = func(string, int32, time.Duration) { m.Abort() }
	m = start(t, cfg)
	close(ready)
	receive(t, hooked)
	receive(t, m.done)
	if m.err != nil {
		t.Error(m.err)
	}
}

// That the group could not be left in order is no failure of what was done before.
func TestLeaveThatFailsIsNoError(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	f := forever(kmsg.LeaveGroup, kerr.UnknownServerError)
	f.TopLevel = true
	refused := b.Fake.Fault(f)
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "it is handled", func() bool { return s.len() == 1 })
	if err := m.stop(); err != nil || refused.Hits() == 0 {
		t.Errorf("Run returned %v, %d requests to leave were refused", err, refused.Hits())
	}
	if c := b.Committed(t, group, topic); c[0] != 1 {
		t.Errorf("committed %v", c)
	}
}

// A member that stops leaves at once: its partitions do not wait for the session time-out.
func TestStopLeavesTheGroup(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		cfg := config(b, group, topic, nop)
		cfg.Sarama = quick
		members := []*member{start(t, cfg), start(t, cfg)}
		eventually(t, "both share the partitions", func() bool { return shared(members, 2) })
		began := time.Now()
		if err := members[0].stop(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other takes over", func() bool { return shared(members[1:], 2) })
		if took := time.Since(began); took > 18*time.Second { // the session time-out is 20 s
			t.Errorf("it took %v", took)
		}
	})
}

// A drain that is longer than the session time-out does not cost the membership: heartbeats go on.
func TestHeartbeatsGoOnWhileDraining(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	beats := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Observe: true, Count: -1})
	h := newBlocking(true)
	cfg := config(b, group, topic, h)
	cfg.DrainTimeout = time.Minute
	cfg.Sarama = func(c *sarama.Config) {
		c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
		c.Consumer.Group.Rebalance.Timeout = 1500 * time.Millisecond
		c.Net.ReadTimeout = 1800 * time.Millisecond
		c.Consumer.Group.Session.Timeout = 2 * time.Second
	}
	m := start(t, cfg)
	receive(t, h.started)
	m.cancel()
	began, before := time.Now(), beats.Hits()
	eventually(t, "it sends heartbeats for longer than a session", func() bool {
		return beats.Hits() > before+20 &&
			time.Since(began) > 2500*time.Millisecond
	})
	close(h.release)
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if c := b.Committed(t, group, topic); c[0] != 1 {
		t.Errorf("committed %v, want 1", c)
	}
}

// Members of one group may consume different topics.
func TestMembersWithDifferentTopics(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		group := serverstest.Group(t)
		var members []*member
		var handled [2]seen
		var assigned atomic.Int32
		for i := range handled {
			topic := b.Topic(t, 2)
			b.Produce(t, records(topic, 2, 5)...)
			cfg := config(b, group, topic, &handled[i])
			cfg.Sarama = quick
			cfg.Hooks.Assigned = func(string, int32) { assigned.Add(1) }
			members = append(members, start(t, cfg))
		}
		for i := range handled {
			eventually(t, "all of its topic are handled", func() bool { return handled[i].len() == 10 })
			eventually(t, "it holds its partitions", func() bool { return len(members[i].Status().Partitions) == 2 }) // the other one's joining takes them away
		}
		if n := assigned.Load(); n > 8 {
			t.Errorf("partitions were assigned %d times", n)
		}
	})
}

// The step from Eager to Cooperative in one is refused by name, and those that run are not disturbed.
func TestOneStepToCooperativeIsRefused(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		var assigned atomic.Int32
		cfg := config(b, group, topic, nop)
		cfg.Sarama = quick
		cfg.Hooks.Assigned = func(string, int32) { assigned.Add(1) }
		eager := start(t, cfg)
		eventually(t, "it runs", func() bool { return shared([]*member{eager}, 2) })
		cfg.Hooks, cfg.Rebalance = consumer.Hooks{}, consumer.Cooperative
		m := start(t, cfg)
		receive(t, m.done)
		if !errors.Is(m.err, sarama.ErrInconsistentGroupProtocol) || !strings.Contains(m.err.Error(), "ToCooperative") {
			t.Errorf("Run returned %v", m.err)
		}
		if assigned.Load() != 2 || !shared([]*member{eager}, 2) {
			t.Errorf("the other member was disturbed: %d assignments", assigned.Load())
		}
	})
}
