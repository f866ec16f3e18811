package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// Retry gives up though its partition goes after each attempt, and does not count what it did not count before.
func TestRetryGivesUpThroughRestarts(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, &sarama.ProducerMessage{Topic: topic})
	var attempts atomic.Int32
	var gaveUp atomic.Pointer[consumer.GaveUp]
	watch := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			err := next.Handle(ctx, msg)
			if g, ok := errors.AsType[*consumer.GaveUp](err); ok {
				gaveUp.Store(g)
				return nil
			}
			return err
		})
	}
	handler := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		if n := attempts.Add(1); n%2 == 0 {
			return dedupstore.WithClass(dedupstore.Unavailable, errors.New("the database is away"))
		}
		return errors.New("for ever")
	})
	for life := range 10 {
		c, err := consumer.New(consumer.Config{Brokers: b.Addrs, Group: group, Topics: map[string]consumer.Topic{topic: {
			Handler: handler,
			Middleware: []consumer.Middleware{watch,
				middleware.Retry(3, &middleware.RetryConfig{Base: time.Hour, Max: time.Hour})},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for end := time.Now().Add(time.Minute); attempts.Load() == int32(life) &&
			gaveUp.Load() == nil; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no attempt within a minute")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if gaveUp.Load() != nil {
			break
		}
	}
	if g := gaveUp.Load(); g == nil || g.Attempts != 3 || attempts.Load() != 5 {
		t.Errorf("gave up: %+v after %d attempts, of which every second does not count; want 3 of 5", g, attempts.Load())
	}
}

// A group that rebalances more often than Retry pauses gives up all the same, after as many attempts as one that does
// not.
func TestRetryGivesUpThroughRebalances(t *testing.T) {
	t.Parallel()
	const attempts = 5
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, &sarama.ProducerMessage{Topic: topic})
	var made, rebalances atomic.Int32
	var gaveUp atomic.Pointer[consumer.GaveUp]
	watch := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			err := next.Handle(ctx, msg)
			if g, ok := errors.AsType[*consumer.GaveUp](err); ok {
				gaveUp.Store(g)
				return nil
			}
			return err
		})
	}
	c, err := consumer.New(consumer.Config{
		Brokers: b.Addrs, Group: group,
		Hooks: consumer.Hooks{Revoked: func(string, int32, time.Duration) { rebalances.Add(1) }},
		Topics: map[string]consumer.Topic{topic: {
			Handler:    consumer.HandlerFunc(func(context.Context, *consumer.Message) error { made.Add(1); return errBase }),
			Middleware: []consumer.Middleware{watch, middleware.Retry(attempts, &middleware.RetryConfig{Base: 2 * time.Second})},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for end := time.Now().Add(3 * time.Minute); gaveUp.Load() == nil && made.Load() <= attempts; {
		if time.Now().After(end) {
			t.Fatalf("%d attempts in %d rebalances", made.Load(), rebalances.Load())
		}
		time.Sleep(2500 * time.Millisecond) // the period of which it is told
		b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Group: group,
			Err: kerr.RebalanceInProgress})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if g := gaveUp.Load(); g == nil || g.Attempts != attempts || made.Load() != attempts {
		t.Errorf("gave up: %+v after %d attempts, want %d", g, made.Load(), attempts)
	}
	if rebalances.Load() < 2 {
		t.Errorf("%d rebalances: nothing is shown", rebalances.Load())
	}
}
