package forward_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
)

// arrived is the message that consumers get of an event.
func arrived(e outbox.Event) *consumer.Message {
	msg := &consumer.Message{Topic: e.Topic, Key: e.Key, Value: e.Value,
		Headers: []consumer.Header{{Key: "event-id", Value: []byte(e.ID)}}}
	if e.Partition != nil {
		msg.Partition = *e.Partition
	}
	for _, h := range e.Headers {
		msg.Headers = append(msg.Headers, consumer.Header(h))
	}
	return msg
}

// A message that is put back with the headers of its dead letter, and dies again and again, has those of its last
// death.
func TestDeadLettersThatDieAgain(t *testing.T) {
	t.Parallel()
	e := &events{}
	msg := message(1)
	var first int
	for round := range 50 {
		msg.Topic, msg.EventID, msg.Consumer = "orders", fmt.Sprint("e", round), "c"
		rec := deadOf(msg, deadletter.KindPermanent)
		if round == 0 {
			rec.TraceID = "0af7651916cd43dd8448eb211c80319c"
		}
		must(t, forward.DeadLetters[int](e, "dead", nil).Write(t.Context(), 0, rec))
		dead := e.written[round]
		if round == 1 {
			first = len(dead.Headers)
		}
		if round > 0 && (len(dead.Headers) != first || header(dead, forward.DeadTraceIDHeader) != "") {
			t.Fatalf("round %d: %d headers, want %d, and the trace id %q", round, len(dead.Headers), first,
				header(dead, forward.DeadTraceIDHeader))
		}
		if got := header(dead, forward.DeadEventHeader); got != msg.EventID {
			t.Fatalf("round %d: the event is %s", round, got)
		}
		msg = arrived(dead)
	}
}

// Names of ours in the headers of a message are the producer's, wherever they are not ours.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	forged := []string{
		forward.DeadSizeHeader, forward.DeadTraceIDHeader, forward.DeadEventIDHeader, forward.DeadHeadersHeader,
		forward.DeadErrorHeader, "einmal-dead-new",
		forward.RetryTopicHeader, forward.RetryEventHeader, forward.RetryAttemptsHeader, forward.RetryPartitionHeader,
		forward.RetryOffsetHeader, forward.RetryDueHeader,
	}
	many := make([]consumer.Header, outbox.MaxHeaders)
	for i := range many {
		many[i] = consumer.Header{Key: "h"}
	}
	for name, more := range map[string][]consumer.Header{"as they are": nil, "encoded": many} {
		msg := &consumer.Message{Topic: "orders", Partition: 3, Offset: 7, EventID: "e", Consumer: "c", Attempt: 2,
			Headers: slices.Clone(more)}
		for _, key := range forged {
			msg.Headers = append(msg.Headers, consumer.Header{Key: key, Value: []byte("forged")})
		}
		e := &events{}
		must(t, forward.DeadLetters[int](e, "dead", nil).Write(t.Context(), 0, deadOf(msg, deadletter.KindPermanent)))
		for _, h := range e.written[0].Headers {
			if strings.Contains(string(h.Value), "forged") {
				t.Errorf("%s: the dead letter has %s: %.100s", name, h.Key, h.Value)
			}
		}
		if got := header(e.written[0], forward.DeadAttemptsHeader); got != "2" {
			t.Errorf("%s: %s attempts, want 2", name, got)
		}
	}
	msg := &consumer.Message{Topic: "orders", Partition: 3, Offset: 7, EventID: "e"}
	for _, key := range forged {
		msg.Headers = append(msg.Headers, consumer.Header{Key: key, Value: []byte("forged")})
	}
	stages := newStages(1)
	stages.handle("orders", msg)
	again := stages.written[0]
	if header(again, forward.RetryTopicHeader) != "orders" || header(again, forward.RetryPartitionHeader) != "3" ||
		header(again, forward.RetryOffsetHeader) != "7" || header(again, forward.RetryAttemptsHeader) != "1" {
		t.Errorf("the retry topic gets %q", again.Headers)
	}
}

// once is a dedupstore.Store that runs everything.
type once struct{}

func (once) Once(ctx context.Context, _ dedupstore.Key, fn func(ctx context.Context, tx int) error) (bool, error) {
	return true, fn(ctx, 0)
}

// stages are a topic and its retry topics, with a handler that always fails.
type stages struct {
	events
	topics map[string]consumer.Topic
}

func newStages(attempts int) *stages {
	s := &stages{}
	letters := forward.DeadLetters[int](&s.events, "orders.dead", nil)
	s.topics = forward.RetryTopics[int](once{}, &s.events, "orders", consumer.Topic{
		Consumer: "billing",
		Middleware: []consumer.Middleware{
			middleware.DeadLetter(once{}, letters, &middleware.DeadLetterConfig{Logger: quiet()}),
			middleware.Retry(attempts, nil),
		},
		Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return errBase }),
	}, &forward.RetryTopicsConfig{Delays: []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}})
	return s
}

// handle has a message handled as the runner does, until it is done with.
func (s *stages) handle(topic string, msg *consumer.Message) {
	t := s.topics[topic]
	h := t.Handler
	for _, mw := range slices.Backward(t.Middleware) {
		h = mw(h)
	}
	time.Sleep(5 * time.Millisecond) // so that it is due
	msg.FirstAttempt = time.Now()
	msg.Attempt = 1
	for h.Handle(context.Background(), msg) != nil && msg.Attempt < 100 {
		msg.Attempt++
	}
}

// What failed in all topics is in the dead letter: so many attempts, since the first of them.
func TestAttemptsOfAllStages(t *testing.T) {
	t.Parallel()
	s := newStages(2)
	began := time.Now()
	msg := &consumer.Message{Topic: "orders", Partition: 3, Offset: 7, EventID: "e", Group: "g", Consumer: "billing"}
	s.handle("orders", msg)
	first := msg.FirstAttempt
	for range 3 {
		e := s.written[len(s.written)-1]
		if e.Partition == nil || *e.Partition != 3 {
			t.Errorf("%s: the partition is %v, want 3", e.Topic, e.Partition)
		}
		next := arrived(e)
		next.EventID, next.Group, next.Consumer = "e", "g", "billing"
		s.handle(next.Topic, next)
	}
	if len(s.written) != 4 {
		t.Fatalf("%d events", len(s.written))
	}
	dead := s.written[3]
	if dead.Topic != "orders.dead" || header(dead, forward.DeadAttemptsHeader) != "8" ||
		header(dead, forward.RetryTopicHeader) != "orders" || header(dead, forward.RetryOffsetHeader) != "7" {
		t.Errorf("%s: %q, want 8 attempts, and the first place", dead.Topic, dead.Headers)
	}
	if at, err := time.Parse(time.RFC3339Nano, header(dead, forward.DeadFirstAttemptHeader)); err != nil ||
		!at.Equal(first.Truncate(0)) || at.Before(began.Truncate(0)) {
		t.Errorf("the first attempt was at %v, %v, want %v", at, err, first)
	}
}
