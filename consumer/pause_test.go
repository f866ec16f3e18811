package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// grouping is a handler of which several messages of a partition may be in work.
type grouping struct{ consumer.Handler }

func (grouping) Group() int { return 4 }

// of returns how many messages of a partition were seen.
func (s *seen) of(topic string, partition int32) (n int) {
	for _, msg := range s.all() {
		if msg.Topic == topic && msg.Partition == partition {
			n++
		}
	}
	return n
}

// first returns what the Status of a member has of the first partition of a topic.
func (m *member) first(topic string) consumer.PartitionStatus {
	for _, p := range m.Status().Partitions {
		if p.Topic == topic && p.Partition == 0 {
			return p
		}
	}
	return consumer.PartitionStatus{}
}

// inOffsets reports whether the messages of each partition were seen in the order of their offsets.
func inOffsets(msgs []*consumer.Message) bool {
	for p := range int32(2) {
		of := slices.DeleteFunc(slices.Clone(msgs), func(m *consumer.Message) bool { return m.Partition != p })
		if !slices.IsSortedFunc(of, func(a, b *consumer.Message) int { return int(a.Offset - b.Offset) }) {
			return false
		}
	}
	return true
}

// A message in work finishes, and no other one of the partition is begun, while the other partition goes on; after it
// all are handled once.
func TestPausedPartitionBeginsNothing(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(h consumer.Handler) consumer.Topic{
		"partition order": func(h consumer.Handler) consumer.Topic { return consumer.Topic{Handler: h} },
		"key order": func(h consumer.Handler) consumer.Topic {
			return consumer.Topic{Handler: h,
				Order: consumer.KeyOrder}
		},
		"unordered": func(h consumer.Handler) consumer.Topic {
			return consumer.Topic{Handler: h, Order: consumer.Unordered, Workers: 2}
		},
		"trains": func(h consumer.Handler) consumer.Topic { return consumer.Topic{Handler: grouping{h}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 2), serverstest.Group(t)
				var s seen
				began, release := make(chan struct{}, 100), make(chan struct{})
				h := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
					if msg.Partition == 0 {
						began <- struct{}{}
						<-release
					}
					return s.Handle(ctx, msg)
				})
				cfg := config(b, group, topic, h)
				cfg.Topics[topic] = made(h)
				m := start(t, cfg)
				b.Produce(t, records(topic, 1, 1)...)
				<-began
				if err := m.Pause(consumer.PauseRequest{Topic: topic, Partitions: []int32{0}, By: "ann",
					Why: "the provider is down"}); err != nil {
					t.Fatal(err)
				}
				close(release)
				eventually(t, "the message in work finishes", func() bool { return s.of(topic, 0) == 1 })
				b.Produce(t, records(topic, 2, 30)...)
				eventually(t, "the other partition goes on", func() bool { return s.of(topic, 1) == 30 })
				eventually(t, "the lag is told", func() bool { p := m.first(topic); return p.Lag == 30 && p.Running == 0 })
				p := m.first(topic)
				if n := s.of(topic, 0); n != 1 || p.UserPause == nil || p.UserPause.By != "ann" ||
					p.UserPause.Why != "the provider is down" || !m.Ready() {
					t.Errorf("%d messages of a paused partition were handled; %+v, ready: %v", n, p.UserPause, m.Ready())
				}
				if err := m.Resume(topic, 0); err != nil {
					t.Fatal(err)
				}
				eventually(t, "all are handled", func() bool { return s.len() == 61 })
				if err := m.stop(); err != nil {
					t.Fatal(err)
				}
				if c := b.Committed(t, group, topic); c[0] != 31 || c[1] != 30 || s.len() != 61 || name == "partition order" &&
					!inOffsets(s.all()) {
					t.Errorf("committed %v, handled %d", c, s.len())
				}
			})
		})
	}
}

// A pause outlasts rebalances, before the first one and while another process has the partition; a drain does not wait
// for its end.
func TestPauseOutlastsRebalances(t *testing.T) {
	t.Parallel()
	for _, r := range []consumer.Rebalance{consumer.Eager, consumer.Cooperative} {
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, control, group := b.Topic(t, 2), b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 2, 10)...)
				var s seen
				paused := func() *member {
					cfg := config(b, group, topic, &s)
					cfg.Topics[control] = consumer.Topic{Handler: &s}
					cfg.Rebalance, cfg.Sarama = r, short
					return startPaused(t, cfg, consumer.PauseRequest{Topic: topic, By: "ann", Why: "a repair"})
				}
				first := paused()
				eventually(t, "the first has all", func() bool { return len(first.Status().Partitions) == 3 })
				second := paused()
				eventually(t, "shared", func() bool {
					a, b := len(first.Status().Partitions), len(second.Status().Partitions)
					return a+b == 3 && a > 0 && b > 0
				})
				if err := second.stop(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the first has all again", func() bool { return len(first.Status().Partitions) == 3 })
				b.Produce(t, records(control, 1, 5)...)
				eventually(t, "the other topic goes on", func() bool { return s.of(control, 0) == 5 })
				if n := s.len(); n != 5 || !first.Ready() || len(first.Status().Pauses) != 1 {
					t.Errorf("%d messages of a paused topic were handled, ready: %v, pauses: %+v", n-5, first.Ready(),
						first.Status().Pauses)
				}
				if err := first.stop(); err != nil { // paused
					t.Fatal(err)
				}
				third := paused()
				if err := third.Resume(topic); err != nil {
					t.Fatal(err)
				}
				eventually(t, "all are handled", func() bool { return s.len() == 25 })
				if err := third.stop(); err != nil {
					t.Fatal(err)
				}
				if c := b.Committed(t, group, topic); c[0] != 10 || c[1] != 10 || s.len() != 25 {
					t.Errorf("committed %v, handled %d", c, s.len())
				}
			})
		})
	}
}

// startPaused is start for a Consumer that is paused before it runs.
func startPaused(t *testing.T, cfg consumer.Config, req consumer.PauseRequest) *member {
	t.Helper()
	cfg.Logger = logger(t)
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(req); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Consumer: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = c.Run(ctx)
	}()
	t.Cleanup(func() { _ = m.stop() })
	return m
}

// A pause with an end ends by itself, and the log has its beginning and its end.
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 5)
	var s seen
	var lines lockedBuffer
	cfg := config(b, group, topic, &s)
	cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	m := start(t, cfg)
	eventually(t, "handled", func() bool { return s.len() == 5 })
	until := time.Now().Add(300 * time.Millisecond)
	if err := m.Pause(consumer.PauseRequest{Topic: topic, By: "ann", Why: "a short one", Until: until}); err != nil {
		t.Fatal(err)
	}
	b.Produce(t, records(topic, 1, 5)...)
	eventually(t, "it is over", func() bool { return s.len() == 10 })
	if time.Now().Before(until) {
		t.Error("messages were handled before its end")
	}
	if got := m.Status().Pauses; len(got) != 0 {
		t.Errorf("%+v are left", got)
	}
	text := lines.String()
	for _, want := range []string{"paused by a user", "by=ann", `why="a short one"`, "until=",
		"the time of a pause is over"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log:\n%s", want, text)
		}
	}
}

// A second pause takes the place of the first, whose end changes nothing; one of a topic and one of its partition hold
// side by side.
func TestPausesSideBySide(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 5)
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "handled", func() bool { return s.len() == 5 })
	soon := time.Now().Add(100 * time.Millisecond)
	for _, req := range []consumer.PauseRequest{
		{Topic: topic, Partitions: []int32{0}, By: "ann", Why: "first", Until: soon},
		{Topic: topic, Partitions: []int32{0, 0}, By: "bob", Why: "second"},
		{Topic: topic, By: "eve", Why: "all", Until: soon.Add(time.Millisecond)},
	} {
		if err := m.Pause(req); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "that of the topic is over", func() bool { return len(m.Status().Pauses) == 1 })
	b.Produce(t, records(topic, 1, 5)...)
	eventually(t, "the lag is told", func() bool { p := m.first(topic); return p.Lag == 5 })
	if p := m.first(topic); p.UserPause == nil || p.UserPause.By != "bob" || s.len() != 5 {
		t.Errorf("paused: %+v, handled %d", p.UserPause, s.len())
	}
	if err := m.Resume(topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are handled", func() bool { return s.len() == 10 })
}

// What cannot be paused, resumed or tried is an error that says what to do.
func TestPausesThatCannotBe(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "handled", func() bool { return s.len() == 1 })
	good := consumer.PauseRequest{Topic: topic, By: "ann", Why: "why"}
	for want, change := range map[string]func(r *consumer.PauseRequest){
		"use one of " + topic:           func(r *consumer.PauseRequest) { r.Topic = "other" },
		"no partition 7: it has 0 to 0": func(r *consumer.PauseRequest) { r.Partitions = []int32{7} },
		"no partition -1":               func(r *consumer.PauseRequest) { r.Partitions = []int32{-1} },
		"By is empty: say who":          func(r *consumer.PauseRequest) { r.By = " " },
		"Why is empty: give a reason":   func(r *consumer.PauseRequest) { r.Why = "" },
		"use at most 1024":              func(r *consumer.PauseRequest) { r.Why = strings.Repeat("x", 1025) },
		"which is over":                 func(r *consumer.PauseRequest) { r.Until = time.Now().Add(-time.Second) },
	} {
		req := good
		if change(&req); !tells(m.Pause(req), want) || len(m.Status().Pauses) > 0 {
			t.Errorf("no error that says %q", want)
		}
	}
	if err := m.Resume(topic); !tells(err, "not paused") {
		t.Errorf("resume of what is not paused: %v", err)
	}
	if err := m.Resume(topic, 3); !tells(err, "no partition 3") {
		t.Errorf("resume of a partition that there is not: %v", err)
	}
	if err := m.Pause(good); err != nil {
		t.Fatal(err)
	}
	if err := m.Resume(topic, 0); !tells(err, "the whole topic is paused") {
		t.Errorf("resume of a partition of a topic: %v", err)
	}
	if err := m.TryNow(topic, 0, 0); !tells(err, "resume it first") {
		t.Errorf("try in a paused partition: %v", err)
	}
}

func tells(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// A parked message is tried at once, with its attempts counted, and those behind it come after it.
func TestTryNow(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		var s seen
		var healed atomic.Bool
		began, release := make(chan struct{}, 10), make(chan struct{})
		m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			switch {
			case msg.Offset == 0 && !healed.Load():
				return consumer.RetryAfter(time.Hour, errors.New("not yet"))
			case msg.Offset == 1:
				began <- struct{}{}
				<-release
			}
			return s.Handle(ctx, msg)
		})))
		b.Produce(t, records(topic, 1, 3)...)
		parked := func(attempts int) func() bool {
			return func() bool {
				p := m.first(topic)
				failing := m.Status().Failing
				return p.Parked == 1 && p.Held == 3 && len(failing) == 1 && failing[0].Attempts == attempts &&
					failing[0].Topic == topic
			}
		}
		eventually(t, "parked", parked(1))
		if err := m.TryNow(topic, 0, 1); !tells(err, "not parked: it waits") {
			t.Errorf("one behind it: %v", err)
		}
		if err := m.TryNow(topic, 0, 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "parked again", parked(2))
		if s.len() > 0 {
			t.Error("one behind it was handled")
		}
		healed.Store(true)
		if err := m.TryNow(topic, 0, 0); err != nil {
			t.Fatal(err)
		}
		<-began
		for offset, want := range map[int64]string{0: "it has finished", 1: "it is in work", 99: "not fetched yet"} {
			if err := m.TryNow(topic, 0, offset); !tells(err, want) {
				t.Errorf("offset %d: %v, want %s", offset, err, want)
			}
		}
		close(release)
		eventually(t, "all are handled", func() bool { return s.len() == 3 })
		if all := s.all(); !inOffsets(all) || all[0].Attempt != 3 {
			t.Errorf("offset %d was handled first, in attempt %d", all[0].Offset, all[0].Attempt)
		}
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if err := m.TryNow(topic, 0, 0); !tells(err, "does not hold the partition") {
			t.Errorf("after the end: %v", err)
		}
	})
}
