package forward

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/outbox"
)

// The headers that a message has in a retry topic, beside its own.
const (
	RetryEventHeader     = "einmal-retry-event"     // the id of the event, wherever it was read from in the first topic
	RetryDueHeader       = "einmal-retry-due"       // not before this it is handled: RFC 3339, UTC
	RetryTopicHeader     = "einmal-retry-topic"     // where it first stood
	RetryPartitionHeader = "einmal-retry-partition" // decimal
	RetryOffsetHeader    = "einmal-retry-offset"    // decimal

	RetryAttemptsHeader     = "einmal-retry-attempts"      // that have failed in all topics before: decimal
	RetryFirstAttemptHeader = "einmal-retry-first-attempt" // of them: RFC 3339, UTC

	retryPrefix = "einmal-retry-"
)

// event is msg for the stage, as of now. Headers with our names are believed of a message that comes from a stage, and
// of no other.
func (s stage) event(msg *consumer.Message, now time.Time) outbox.Event {
	e := eventOf(msg, s.topic, func(name string) bool { return strings.HasPrefix(name, retryPrefix) })
	e.Partition = &msg.Partition
	add(&e, RetryEventHeader, msg.EventID)
	add(&e, RetryDueHeader, timeText(now.Add(s.delay)))
	attempts, first := msg.Attempt, msg.FirstAttempt
	if msg.Earlier != nil {
		attempts += msg.Earlier.Attempts
		if !msg.Earlier.FirstAttempt.IsZero() {
			first = msg.Earlier.FirstAttempt
		}
	}
	add(&e, RetryAttemptsHeader, strconv.Itoa(attempts))
	add(&e, RetryFirstAttemptHeader, timeText(first))
	if origin, ok := msg.Header(RetryTopicHeader); ok && msg.Earlier != nil {
		add(&e, RetryTopicHeader, string(origin))
		for _, name := range []string{RetryPartitionHeader, RetryOffsetHeader} {
			value, _ := msg.Header(name)
			add(&e, name, string(value))
		}
		return e
	}
	add(&e, RetryTopicHeader, msg.Topic)
	add(&e, RetryPartitionHeader, strconv.Itoa(int(msg.Partition)))
	add(&e, RetryOffsetHeader, strconv.FormatInt(msg.Offset, 10))
	return e
}

// asPermanent makes the error of an event that the outbox will never take permanent.
func asPermanent(err error) error {
	if errors.Is(err, outbox.ErrInvalidEvent) {
		return consumer.Permanent(err)
	}
	return err
}

// due is when msg is to be handled. It was sent after it was written, so it is due within the delay after that,
// whatever its header says.
func (s stage) due(msg *consumer.Message) time.Time {
	latest := msg.Timestamp.Add(s.delay)
	text, _ := msg.Header(RetryDueHeader)
	due, err := time.Parse(time.RFC3339Nano, string(text))
	switch {
	case err != nil && msg.Timestamp.IsZero():
		return time.Time{}
	case err != nil, due.After(latest) && !msg.Timestamp.IsZero():
		return latest
	}
	return due
}

// earlier is what the headers say of a message in a retry topic.
func earlier(msg *consumer.Message) *consumer.Earlier {
	e := &consumer.Earlier{}
	attempts, _ := msg.Header(RetryAttemptsHeader)
	if n, err := strconv.ParseInt(string(attempts), 10, 32); err == nil && n > 0 {
		e.Attempts = int(n)
	}
	first, _ := msg.Header(RetryFirstAttemptHeader)
	e.FirstAttempt, _ = time.Parse(time.RFC3339Nano, string(first)) // or no time
	return e
}

// wait is a consumer.Middleware that keeps the delay.
func (s stage) wait(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		msg.Earlier = earlier(msg)
		if due := s.due(msg); time.Now().Before(due) {
			return consumer.NotBefore(due)
		}
		return next.Handle(ctx, msg)
	})
}

// wrong is a link that says what is wrong with the arguments of RetryTopics.
type wrong struct {
	consumer.Handler
	err error
}

// Validate implements consumer.Validator.
func (w *wrong) Validate([]consumer.Handler) error { return w.err }

// outboxCheck is a link that looks for the outbox.
type outboxCheck[Tx any] struct {
	consumer.Handler
	store  dedupstore.Store[Tx]
	events Events[Tx]
	topic  string
}

// checkAgain is the pause between two checks of a database that does not answer.
const checkAgain = 500 * time.Millisecond

// Check implements consumer.Checker: it writes an event, and rolls it back.
func (c *outboxCheck[Tx]) Check(ctx context.Context) error {
	store, ok := c.store.(dedupstore.Transactor[Tx])
	if !ok {
		return nil
	}
	err := dryStore[Tx]{store}.InTx(ctx, func(ctx context.Context, tx Tx) error {
		return write(ctx, c.events, tx, outbox.Event{Topic: c.topic})
	})
	switch {
	case errors.Is(err, errDry):
		return nil
	case errors.Is(err, dedupstore.ErrUnavailable), dedupstore.ClassOf(err) == dedupstore.Unavailable:
		return consumer.RetryAfter(checkAgain, err)
	}
	return err
}
