package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestDue(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour)
	err := consumer.NotBefore(at)
	if got, ok := consumer.Due(errors.Join(errBase, err)); !ok || !got.Equal(at) {
		t.Errorf("Due() = %v, %v", got, ok)
	}
	if d, ok := consumer.Delay(err); !ok || d > time.Hour || d < 59*time.Minute {
		t.Errorf("Delay() = %v, %v", d, ok)
	}
	if d, ok := consumer.Delay(consumer.NotBefore(time.Time{})); !ok || d != 0 {
		t.Errorf("Delay() of the past = %v, %v", d, ok)
	}
	for _, other := range []error{nil, errBase, consumer.RetryAfter(time.Second, err), consumer.Permanent(err)} {
		if _, ok := consumer.Due(other); ok {
			t.Errorf("%v is taken for a NotBefore", other)
		}
	}
}

// A message that is not due is parked, does not count as failing, and holds up no other.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 3)...)
	var mu sync.Mutex
	var due time.Time // as the first message has said the last time
	released := false
	handled := map[int64]consumer.Message{}
	cfg := config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case msg.Offset == 0 && !released:
			due = time.Now().Add(20 * time.Millisecond)
			return consumer.NotBefore(due)
		case msg.Offset == 0 && msg.Attempt == 1:
			handled[-1] = *msg
			return consumer.RetryAfter(time.Millisecond, errHandler)
		}
		handled[msg.Offset] = *msg
		return nil
	}))
	tp := cfg.Topics[topic]
	tp.Order = consumer.Unordered
	cfg.Topics[topic] = tp
	m := start(t, cfg)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)
	}
	eventually(t, "the others are handled", func() bool { return count() == 2 })
	eventually(t, "it waits", func() bool {
		p := partition(t, m, topic)
		if p.Failing != nil || p.OldestAttempts != 0 || p.LastError != nil {
			t.Fatalf("a message that is not due is shown as failing: %+v", p)
		}
		return p.Parked == 1 && p.OldestDue.After(p.OldestSince)
	})
	mu.Lock()
	released = true
	mu.Unlock()
	eventually(t, "it is handled", func() bool { return count() == 4 })
	mu.Lock()
	defer mu.Unlock()
	if first, second := handled[-1], handled[0]; first.LastError != nil || first.FirstAttempt.Before(due) ||
		second.Attempt != 2 || !errors.Is(second.LastError, errHandler) {
		t.Errorf("attempts %+v, then %+v; due %v", first, second, due)
	}
}

// A delivery without a broker sees the same.
func TestNotBeforeInADelivery(t *testing.T) {
	t.Parallel()
	var msgs []consumer.Message
	c, err := consumer.New(consumer.Config{Brokers: []string{"nowhere:1"}, Group: "g", Topics: map[string]consumer.Topic{
		"t": {Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			msgs = append(msgs, *msg)
			if len(msgs) < 3 {
				return consumer.NotBefore(time.Now().Add(time.Hour))
			}
			return nil
		})},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Deliver(&consumer.Message{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if a := d.Attempt(t.Context()); a.Again != (i < 2) || a.Again && a.Delay < 59*time.Minute || msgs[i].Attempt != 1 ||
			msgs[i].LastError != nil {
			t.Errorf("%d: %+v, %+v", i, a, msgs[i])
		}
	}
	if msgs[2].FirstAttempt.Equal(msgs[0].FirstAttempt) {
		t.Error("the first attempt began before it was due")
	}
}
