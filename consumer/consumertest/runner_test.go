package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// The runner and consumertest show the same story to a chain.
func TestSameAsTheRunner(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value"),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("e1")}},
	})
	config := func(h consumer.Handler) consumer.Config {
		return consumer.Config{
			Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
			Topics: map[string]consumer.Topic{topic: {Handler: h}},
		}
	}

	var live, played story
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live.done = cancel
	if err := consumer.Run(ctx, config(&live)); err != nil {
		t.Fatal(err)
	}

	msg := consumertest.Message(topic, "e1", []byte("value"))
	msg.Key = []byte("key")
	out := consumertest.New(t, config(&played), nil).Deliver(t.Context(), msg)
	if out.Err != nil {
		t.Fatal(out)
	}
	if got, want := played.String(), live.String(); got != want || played.attempts != 5 {
		t.Errorf("played:\n%s\nby the runner:\n%s", got, want)
	}
}

// story is a handler that fails in every way before it succeeds, and notes what it sees.
type story struct {
	strings.Builder
	attempts int
	first    time.Time
	done     func()
}

func (s *story) Handle(ctx context.Context, msg *consumer.Message) error {
	s.attempts++
	if s.attempts == 1 {
		s.first = msg.FirstAttempt
	}
	from, _ := consumer.MessageFrom(ctx)
	fmt.Fprintf(s, "%s[%d]@%d %q %q %v, %s, %s, %q %v, attempt %d, same start %v, after %T %v, %+v, own message %v\n",
		msg.Topic, msg.Partition, msg.Offset, msg.Key, msg.Value, msg.Headers, msg.Group, msg.Consumer, msg.EventID,
		msg.EventIDErr,
		msg.Attempt, msg.FirstAttempt.Equal(s.first), msg.LastError, msg.LastError, msg.Result, from == msg)
	msg.Result.Duplicate, msg.EventID, msg.Attempt = true, "spoilt", 99
	switch s.attempts {
	case 1:
		return consumer.RetryAfter(time.Millisecond, errStock)
	case 2:
		panic("out of stock")
	case 3:
		return consumer.RetryAfter(-time.Second, errStock)
	case 4:
		return consumer.RetryAfter(0, errors.Join(errStock, consumer.Permanent(errStock)))
	}
	if s.done != nil {
		s.done()
	}
	return nil
}
