package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var errHandler = errors.New("handler failed")

// A message that fails holds its partition, is seen in Status, is never skipped, and holds no other partition.
func TestKeepTryingHoldsThePartitionOnly(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		b.Produce(t, records(topic, 2, 5)...)
		var s seen
		var healed atomic.Bool
		m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if msg.Partition == 0 && msg.Offset == 2 && !healed.Load() {
				return fmt.Errorf("%w: attempt %d", errHandler, msg.Attempt)
			}
			return s.Handle(ctx, msg)
		})))
		eventually(t, "the other partition is finished and the failing one waits", func() bool { return s.len() == 7 })
		eventually(t, "Status shows the failure", func() bool {
			for _, p := range m.Status().Partitions {
				f := p.Failing
				if p.Partition == 0 && f != nil && f.Attempts >= 2 {
					return f.Offset == 2 && p.Oldest == 2 && p.Next == 2 && errors.Is(f.Err, errHandler) && !f.RetryAt.Before(f.Since)
				}
			}
			return false
		})
		if s.len() != 7 {
			t.Fatalf("%d messages were handled although one before them failed, want 7", s.len())
		}
		healed.Store(true)
		eventually(t, "the partition goes on", func() bool { return s.len() == 10 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 5 || c[1] != 5 {
			t.Errorf("committed %v, want 5 and 5", c)
		}
		inOrder(t, s.all())
	})
}

func inOrder(t *testing.T, msgs []*consumer.Message) {
	t.Helper()
	last := map[int32]int64{0: -1, 1: -1}
	for _, msg := range msgs {
		if msg.Offset != last[msg.Partition]+1 {
			t.Errorf("partition %d: offset %d follows %d", msg.Partition, msg.Offset, last[msg.Partition])
		}
		last[msg.Partition] = msg.Offset
	}
}

// With Stop, Run ends with the error, and the failed message is the first to come again.
func TestStopReturnsTheError(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 5)...)
		cfg := config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			if msg.Offset == 3 {
				return consumer.Permanent(errHandler)
			}
			return nil
		}))
		tp := cfg.Topics[topic]
		tp.OnFailure = consumer.Stop
		cfg.Topics[topic] = tp
		m := start(t, cfg)
		receive(t, m.done)
		var stopped *consumer.StopError
		if !errors.As(m.err, &stopped) || stopped.Topic != topic || stopped.Partition != 0 || stopped.Offset != 3 ||
			!errors.Is(m.err, errHandler) {
			t.Errorf("Run returned %v", m.err)
		}
		if c := b.Committed(t, group, topic); c[0] != 3 {
			t.Errorf("committed %v, want 3: what failed is not committed", c)
		}
		if p := m.Status().Phase; p != consumer.Stopped {
			t.Errorf("phase %s", p)
		}
	})
}

// RetryAfter is waited for by nobody, counts attempts, and is no failure: OnFailure Stop does not see it.
func TestRetryAfterParks(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 3)
	var s seen
	var attempts seen
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		attempts.add(msg)
		if msg.Offset == 1 && msg.Attempt < 4 {
			return consumer.RetryAfter(50*time.Millisecond, errHandler)
		}
		return s.Handle(ctx, msg)
	}))
	tp := cfg.Topics[topic]
	tp.OnFailure = consumer.Stop
	cfg.Topics[topic] = tp
	m := start(t, cfg)
	eventually(t, "all are handled", func() bool { return s.len() == 3 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	var want int
	var first time.Time
	for _, msg := range attempts.all() {
		if msg.Offset != 1 {
			continue
		}
		want++
		if first.IsZero() {
			first = msg.FirstAttempt
		}
		if msg.Attempt != want || !msg.FirstAttempt.Equal(first) {
			t.Errorf("attempt %d since %v, want %d since %v", msg.Attempt, msg.FirstAttempt, want, first)
		}
	}
	if want != 4 {
		t.Errorf("%d attempts, want 4", want)
	}
	inOrder(t, s.all())
}

// What a handler does to its goroutine stays with its message.
func TestPanicAndGoexitAreContained(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 3)
	var s seen
	m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		switch {
		case msg.Attempt > 1 || msg.Offset != 1:
			return s.Handle(ctx, msg)
		case msg.Partition == 0:
			panic(fmt.Sprintf("at %d", msg.Offset))
		default:
			runtime.Goexit()
			return nil
		}
	})))
	eventually(t, "Status shows both", func() bool {
		found := 0
		for _, p := range m.Status().Partitions {
			var caught *consumer.Panic
			if p.Failing != nil && errors.As(p.Failing.Err, &caught) &&
				(p.Partition == 1 || strings.Contains(string(caught.Stack), "failure_test.go")) {
				found++
			}
		}
		return found == 2
	})
	eventually(t, "all are handled", func() bool { return s.len() == 6 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	inOrder(t, s.all())
}

// A panic in EventID is contained too.
func TestPanicInEventID(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 1)
	var calls atomic.Int32
	var s seen
	cfg := config(b, group, topic, &s)
	tp := cfg.Topics[topic]
	tp.EventID = func(*consumer.Message) (string, error) {
		if calls.Add(1) == 1 {
			panic("no id")
		}
		return "id", nil
	}
	cfg.Topics[topic] = tp
	m := start(t, cfg)
	eventually(t, "it is handled as one without an id", func() bool {
		return s.len() == 1 && s.all()[0].Attempt == 1 && errors.Is(s.all()[0].EventIDErr, consumer.ErrNoEventID)
	})
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}

// A message that fails through rebalances and restarts has an age and a number of attempts that say so.
func TestAgeSurvivesRestarts(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 5)...)
		var attempts seen
		cfg := ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if msg.Offset != 2 {
				return nil
			}
			_ = attempts.Handle(ctx, msg)
			return consumer.RetryAfter(20*time.Millisecond, errHandler)
		}), consumer.Unordered, 4)
		var before consumer.PartitionStatus
		for life := range 4 {
			m := start(t, cfg)
			n := attempts.len()
			eventually(t, "it fails twice more", func() bool {
				p := m.Status().Partitions
				if len(p) == 0 || p[0].Failing == nil || p[0].OldestAttempts < 2*(life+1) || attempts.len() < n+2 {
					return false
				}
				if life > 0 && (p[0].Failing.Since.UnixMilli() != before.Failing.Since.UnixMilli() ||
					p[0].OldestSince.UnixMilli() != before.OldestSince.UnixMilli()) {
					t.Fatalf("life %d: failing since %v, open since %v; was %v, %v", life, p[0].Failing.Since, p[0].OldestSince,
						before.Failing.Since, before.OldestSince)
				}
				before = p[0]
				return true
			})
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		}
		last := 0
		for _, msg := range attempts.all() {
			if msg.Attempt != last+1 {
				t.Errorf("attempt %d follows %d", msg.Attempt, last)
			}
			last = msg.Attempt
		}
	})
}

// In a group that rebalances again and again a message that fails for ever gets old, and its attempts add up, so that
// it can be told of and given up.
func TestAgeSurvivesRebalances(t *testing.T) {
	t.Parallel()
	const rebalances = 5
	b, topic, group := backlog(t, 1, 5)
	var attempts seen
	cfg := ordered(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Offset != 2 {
			return nil
		}
		_ = attempts.Handle(ctx, msg)
		return consumer.RetryAfter(20*time.Millisecond, errHandler)
	}), consumer.Unordered, 4)
	cfg.Sarama = short
	m := start(t, cfg)
	failing := func() (p consumer.PartitionStatus, ok bool) {
		if all := m.Status().Partitions; len(all) == 1 {
			p = all[0]
		}
		return p, p.Failing != nil && p.OldestAttempts > 0
	}
	eventually(t, "it fails", func() bool { _, ok := failing(); return ok })
	first, _ := failing()
	for range rebalances {
		before, n := m.Status().Totals.Rebalances, attempts.len()
		rebalance(b, group)
		eventually(t, "the group has rebalanced, and it fails again", func() bool {
			p, ok := failing()
			return ok && m.Status().Totals.Rebalances > before && attempts.len() > n && p.OldestAttempts > n
		})
	}
	last, _ := failing()
	if last.OldestSince.UnixMilli() != first.OldestSince.UnixMilli() ||
		last.Failing.Since.UnixMilli() != first.Failing.Since.UnixMilli() {
		t.Errorf("open since %v, failing since %v; was %v, %v", last.OldestSince, last.Failing.Since, first.OldestSince,
			first.Failing.Since)
	}
	if last.Assigned.Equal(first.Assigned) {
		t.Error("the partition was not assigned anew: nothing is shown")
	}
	before := 0
	for _, msg := range attempts.all() {
		if msg.Attempt != before+1 {
			t.Errorf("attempt %d follows %d", msg.Attempt, before)
		}
		before = msg.Attempt
	}
	must(t, m.stop())
}
