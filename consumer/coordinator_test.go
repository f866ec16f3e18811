package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// soon fails the test if ok does not become true.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// received waits for what a handler has to say.
func received[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

func testGroupClient(t *testing.T, group string, b *serverstest.Broker, edit func(*sarama.Config)) *groupClient {
	t.Helper()
	conf := newSaramaConfig(group, &strategy{})
	if edit != nil {
		edit(conf)
	}
	client, err := sarama.NewClient(b.Addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	g := newGroupClient(client, group, nil, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = g.Close() }) // some tests have closed it
	return g
}

// coordinators returns the group's broker on its own connection, and on the client's.
func coordinators(t *testing.T, g *groupClient, group string) (own, shared *sarama.Broker) {
	t.Helper()
	own, err := g.Coordinator(group)
	if err != nil {
		t.Fatal(err)
	}
	if shared, err = g.Client.Coordinator(group); err != nil {
		t.Fatal(err)
	}
	return own, shared
}

func connected(b *sarama.Broker) bool {
	ok, _ := b.Connected()
	return ok
}

func TestCoordinatorHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		group := serverstest.Group(t)
		g := testGroupClient(t, group, b, nil)
		own, shared := coordinators(t, g, group)
		if own == shared || own.Addr() != shared.Addr() {
			t.Fatalf("own %p at %s, shared %p at %s", own, own.Addr(), shared, shared.Addr())
		}
		if !connected(own) {
			_, err := own.Connected()
			t.Fatalf("not connected: %v", err)
		}
		if again, _ := coordinators(t, g, group); again != own || !connected(own) {
			t.Error("the second call returns another broker, or it is not connected any more")
		}

		// sarama closes it after an error; the next call looks for the coordinator again.
		if err := own.Close(); err != nil {
			t.Fatal(err)
		}
		again, _ := coordinators(t, g, group)
		if again == own || !connected(again) || again.Addr() != own.Addr() {
			t.Error("after Close: the same broker, or another address, or it is not connected")
		}
		own = again

		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		soon(t, "the connection is closed", func() bool { return !connected(own) })
		soon(t, "the client closes its own, in the background", func() bool { return !connected(shared) })
		if _, err := g.Coordinator(group); !errors.Is(err, sarama.ErrClosedClient) || g.own != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestCoordinatorFollowsAMove(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	before, _ := coordinators(t, g, group)
	node := b.Fake.CoordinatorFor(group)
	for b.Fake.CoordinatorFor(group) == node {
		b.Fake.RehashCoordinators()
	}
	if err := g.RefreshCoordinator(group); err != nil {
		t.Fatal(err)
	}
	after, shared := coordinators(t, g, group)
	if after == before || after == shared || after.Addr() == before.Addr() {
		t.Errorf("before %s, after %s", before.Addr(), after.Addr())
	}
	soon(t, "the old one is closed", func() bool { return !connected(before) })
	if !connected(after) {
		t.Error("the new one is not connected")
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	soon(t, "the new one is closed", func() bool { return !connected(after) })
}

func TestCoordinatorFromManyGoroutines(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				b.Fake.RehashCoordinators()
				_ = g.RefreshCoordinator(group)
				if _, err := g.Coordinator(group); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// often makes heartbeats and commits frequent.
func often(c *sarama.Config) {
	c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	c.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
}

// waitsFor is how long a fetch waits; what does not wait for it is soon done, even on a slow machine.
const waitsFor, soonDone = 8 * time.Second, 4 * time.Second

// longPolls makes fetches wait, which is what all else would wait for on a shared connection.
func longPolls(c *sarama.Config) {
	often(c)
	c.Consumer.MaxWaitTime = waitsFor
}

// committer measures commits within a session, while the topic is idle.
type committer struct {
	sarama.ConsumerGroupHandler
	took chan time.Duration
}

func (c *committer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *committer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *committer) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	msg := <-claim.Messages() // the fetch after it waits
	for i := range cap(c.took) {
		sess.MarkOffset(msg.Topic, msg.Partition, msg.Offset+1+int64(i), "")
		began := time.Now()
		sess.Commit()
		c.took <- time.Since(began)
	}
	<-sess.Context().Done()
	return nil
}

func TestCommitDoesNotWaitForFetches(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1)) // the coordinator leads the partition too
	topic, name := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, &sarama.ProducerMessage{Topic: topic})
	g := testGroupClient(t, name, b, func(c *sarama.Config) {
		longPolls(c)
		c.Consumer.Offsets.AutoCommit.Enable = false // Commit alone commits
	})
	group, err := sarama.NewConsumerGroupFromClient(name, g)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &committer{took: make(chan time.Duration, 5)}
	done := make(chan error, 1)
	go func() { done <- group.Consume(ctx, []string{topic}, c) }()
	for range cap(c.took) {
		if took := received(t, c.took); took > soonDone {
			t.Errorf("Commit took %v", took)
		}
	}
	if got := b.Committed(t, name, topic)[0]; got != 5 {
		t.Errorf("committed %d, want 5: what was measured is no commit", got)
	}
	cancel()
	if err := received(t, done); err != nil {
		t.Error(err)
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
}

// The same of a whole Consumer: its commits and heartbeats are on time while fetches wait.
func TestConsumerDoesNotWaitForFetches(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	var mu sync.Mutex
	var last time.Time
	var gap time.Duration
	beats := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Observe: true, Count: -1,
		When: func(kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); last.IsZero() {
				last = now
			} else {
				gap, last = max(gap, now.Sub(last)), now
			}
			return true
		}})
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	handled := make(chan time.Time, 1)
	c, err := New(Config{
		Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler), Sarama: longPolls,
		Topics: map[string]Topic{topic: {Handler: HandlerFunc(func(context.Context, *Message) error {
			handled <- time.Now()
			return nil
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for i := range int64(2) {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(i))})
		began := received(t, handled)
		soon(t, "the commit", func() bool { return b.Committed(t, group, topic)[0] == i+1 })
		if took := time.Since(began); took > soonDone {
			t.Errorf("from the handler to the commit it took %v", took)
		}
	}
	soon(t, "20 heartbeats", func() bool { return beats.Hits() >= 20 })
	cancel()
	if err := received(t, done); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if gap > soonDone {
		t.Errorf("%v between two heartbeats", gap)
	}
}

// A Consumer goes on when its coordinator moves.
func TestConsumerFollowsItsCoordinator(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	handled := make(chan int64, 100)
	c, err := New(Config{
		Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler), Sarama: often,
		Topics: map[string]Topic{topic: {Handler: HandlerFunc(func(_ context.Context, msg *Message) error {
			handled <- msg.Offset
			return nil
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for i := range int64(3) {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic})
		if got := received(t, handled); got != i {
			t.Fatalf("offset %d is handled, want %d: a message came again or was skipped", got, i)
		}
		soon(t, "the commit", func() bool { return b.Committed(t, group, topic)[0] == i+1 })
		node := b.Fake.CoordinatorFor(group)
		for b.Fake.CoordinatorFor(group) == node {
			b.Fake.RehashCoordinators()
		}
	}
	cancel()
	if err := received(t, done); err != nil {
		t.Error(err)
	}
	if len(handled) > 0 {
		t.Errorf("%d messages came again", len(handled))
	}
}
