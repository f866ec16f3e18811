package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// receive waits for what a handler has to say.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

// partition returns the status of a topic's partition 0, which the member must hold.
func partition(t *testing.T, m *member, topic string) consumer.PartitionStatus {
	t.Helper()
	for _, p := range m.Status().Partitions {
		if p.Topic == topic && p.Partition == 0 {
			return p
		}
	}
	t.Fatalf("%s[0] is not held", topic)
	return consumer.PartitionStatus{}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, records(topic, 1, 1)...)
		checks, goOn := make(chan struct{}), make(chan struct{})
		h := newBlocking(false)
		cfg := config(b, group, topic, &checked{h, func(context.Context) error {
			close(checks)
			<-goOn
			return nil
		}})
		cfg.Logger = logger(t)
		c, err := consumer.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		phase := func(want consumer.Phase, partitions int) {
			t.Helper()
			if s := c.Status(); s.Phase != want || len(s.Partitions) != partitions {
				t.Errorf("%s with %d partitions, want %s with %d", s.Phase, len(s.Partitions), want, partitions)
			}
		}
		phase(consumer.Created, 0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		receive(t, checks)
		phase(consumer.Starting, 0)
		close(goOn)
		receive(t, h.started)
		phase(consumer.Running, 1)
		cancel()
		eventually(t, "it drains", func() bool { return c.Status().Phase == consumer.Draining })
		phase(consumer.Draining, 1) // the message that is in work still holds it
		close(h.release)
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
		phase(consumer.Stopped, 0)
	})
}

func TestPhaseAfterAFailedStart(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Brokers, cfg.StartTimeout = []string{closedAddr(t)}, time.Millisecond
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it started")
	}
	if s := c.Status(); s.Phase != consumer.Stopped || s.Partitions != nil {
		t.Errorf("status %+v", s)
	}
}

// A message that failed for good drains the others.
func TestPhaseAfterStop(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 1)
	h := newBlocking(false)
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Partition == 0 {
			return h.Handle(ctx, msg)
		}
		for len(h.started) == 0 { // else the other message may never start
			runtime.Gosched()
		}
		return errHandler
	}))
	tp := cfg.Topics[topic]
	tp.OnFailure = consumer.Stop
	cfg.Topics[topic] = tp
	m := start(t, cfg)
	eventually(t, "it drains", func() bool { return m.Status().Phase == consumer.Draining })
	close(h.release)
	receive(t, m.done)
	if s := m.Status(); s.Phase != consumer.Stopped || !errors.Is(m.err, errHandler) {
		t.Errorf("phase %s, Run returned %v", s.Phase, m.err)
	}
}

// Partitions are sorted by topic and then by number, not by text.
func TestStatusIsSorted(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group, before := serverstest.Group(t), time.Now()
	cfg := config(b, group, b.Topic(t, 12), nop)
	var topics []string
	for range 3 {
		topic := b.Topic(t, 2)
		cfg.Topics[topic] = consumer.Topic{Handler: nop}
	}
	for topic := range cfg.Topics {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	m := start(t, cfg)
	eventually(t, "all are held", func() bool { return len(m.Status().Partitions) == 18 })
	for range 10 { // it comes from a map
		s := m.Status()
		sorted := slices.IsSortedFunc(s.Partitions, func(a, b consumer.PartitionStatus) int {
			return cmp.Or(slices.Index(topics, a.Topic)-slices.Index(topics, b.Topic), int(a.Partition-b.Partition))
		})
		if !sorted {
			t.Fatalf("not sorted: %+v", s.Partitions)
		}
	}
	for _, p := range m.Status().Partitions {
		if p.Assigned.Before(before) || p.Assigned.After(time.Now()) {
			t.Errorf("%s[%d] was assigned at %v", p.Topic, p.Partition, p.Assigned)
		}
		if !p.Progress.Equal(p.Assigned) {
			t.Errorf("progress at %v, assigned at %v", p.Progress, p.Assigned)
		}
		p.Topic, p.Partition, p.Assigned, p.Progress, p.Uncommitted = "", 0, time.Time{}, time.Time{}, time.Time{}
		p.Committed = min(p.Committed, -1) // its beginning, when it is known
		if p != (consumer.PartitionStatus{Lag: -1, End: -1, Committed: -1, Oldest: -1, Next: -1}) {
			t.Errorf("an idle partition: %+v", p)
		}
	}
}

// What the snapshot says about a partition, step by step.
func TestPartitionStatus(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 5)
	answers, started := make(chan error), make(chan *consumer.Message, 10)
	m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		started <- msg
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})))
	expect := func(step string, want consumer.PartitionStatus) *consumer.Failing {
		t.Helper()
		var got consumer.PartitionStatus
		eventually(t, step, func() bool {
			got = partition(t, m, topic)
			f := got.Failing
			if got.Held > 0 && (got.Bytes < 100*got.Held || got.OldestSince.Before(got.Assigned)) ||
				got.Progress.Before(got.Assigned) {
				t.Fatalf("%+v", got)
			}
			got.Topic, got.Assigned, got.Progress, got.OldestSince, got.Bytes, got.Failing = "", time.Time{}, time.Time{},
				time.Time{}, 0, nil
			if got == want {
				got.Failing = f
				return true
			}
			return false
		})
		return got.Failing
	}

	receive(t, started)
	if f := expect("0 runs", consumer.PartitionStatus{Lag: 5, End: 5, Held: 5, Running: 1, Ahead: 5, Oldest: 0,
		Next: -1}); f != nil {
		t.Errorf("failing: %+v", f)
	}
	answers <- nil
	receive(t, started)
	if f := expect("1 runs", consumer.PartitionStatus{Lag: 4, End: 5, Committed: 1, Held: 4, Running: 1, Ahead: 4, Oldest: 1,
		Next: 1}); f != nil {
		t.Errorf("failing: %+v", f)
	}

	began := time.Now()
	failure := consumer.RetryAfter(time.Hour, errHandler)
	answers <- failure
	f := expect("1 is parked", consumer.PartitionStatus{Lag: 4, End: 5, Committed: 1, Held: 4, Parked: 1, Ahead: 4, Oldest: 1,
		OldestAttempts: 1, Next: 1, LastError: failure})
	if f == nil || f.Offset != 1 || f.Attempts != 1 || !errors.Is(f.Err, errHandler) {
		t.Fatalf("failing: %+v", f)
	}
	if f.Since.After(began) || f.RetryAt.Before(began.Add(time.Hour)) || f.RetryAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("began %v, failing since %v, next at %v", began, f.Since, f.RetryAt)
	}
	m.cancel()
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// While a message that failed is tried again, it is still shown as failing, with what came of the attempts before.
func TestFailingWhileItRunsAgain(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 2)
	h := newBlocking(false)
	m := start(t, config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Attempt < 3 {
			return consumer.RetryAfter(time.Millisecond, errHandler)
		}
		return h.Handle(ctx, msg)
	})))
	msg := receive(t, h.started)
	p := partition(t, m, topic)
	if p.Running != 1 || p.Failing == nil || p.Failing.Offset != 0 || p.Failing.Attempts != 2 ||
		!p.Failing.Since.Equal(msg.FirstAttempt) {
		t.Errorf("status %+v, failing %+v, first attempt at %v", p, p.Failing, msg.FirstAttempt)
	}
	close(h.release)
	eventually(t, "both are finished", func() bool { return h.len() == 2 })
	eventually(t, "nothing fails", func() bool { return partition(t, m, topic).Failing == nil })
}

// Snapshots under load: free of races, and each consistent in itself.
func TestStatusUnderLoad(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 4), serverstest.Group(t)
	var s seen
	var snapshots, withFailing atomic.Int64
	cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if msg.Attempt == 1 && msg.Offset%7 == 3 {
			return consumer.RetryAfter(time.Millisecond, errHandler)
		}
		for msg.Attempt > 1 && withFailing.Load() == 0 { // a snapshot shows it
			runtime.Gosched()
		}
		return s.Handle(ctx, msg)
	}))
	cfg.Sarama = func(c *sarama.Config) { c.Consumer.MaxWaitTime = 50 * time.Millisecond }
	m := start(t, cfg)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			next := map[int32]int64{}
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, p := range m.Status().Partitions {
					snapshots.Add(1)
					if p.Failing != nil {
						withFailing.Add(1)
					}
					if text := inconsistent(p); text != "" {
						t.Errorf("%s: %+v", text, p)
					}
					if last, ok := next[p.Partition]; ok && p.Next < last {
						t.Errorf("partition %d: Next fell from %d to %d", p.Partition, last, p.Next)
					}
					next[p.Partition] = p.Next
				}
				time.Sleep(time.Millisecond) // so that the handlers get on
			}
		})
	}
	for range 10 {
		b.Produce(t, records(topic, 4, 50)...)
	}
	eventually(t, "all are handled", func() bool { return s.len() == 2000 })
	close(done)
	wg.Wait()
	if snapshots.Load() == 0 || withFailing.Load() == 0 {
		t.Errorf("%d snapshots, %d with a failing message: nothing was tested", snapshots.Load(), withFailing.Load())
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// inconsistent says what in the snapshot contradicts itself, in the order of a partition and without gaps in its
// offsets.
func inconsistent(p consumer.PartitionStatus) string {
	switch {
	case p.Held < 0 || p.Running < 0 || p.Running > 1 || p.Running > p.Held:
		return "counts"
	case (p.Held == 0) != (p.Oldest < 0):
		return "Held and Oldest"
	case p.Oldest >= 0 && p.Next >= 0 && p.Oldest != p.Next:
		return "Oldest and Next"
	case p.Failing != nil && (p.Failing.Offset != p.Oldest || p.Failing.Attempts < 1 || p.Failing.Err == nil):
		return "Failing"
	}
	return ""
}
