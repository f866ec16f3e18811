package forward

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/outbox"
)

// Events writes events of the outbox in a transaction: a *pgxoutbox.Writer, *sqloutbox.Writer or *bunoutbox.Writer.
type Events[Tx any] interface {
	Write(ctx context.Context, tx Tx, events ...outbox.Event) error
}

// eventOf is the event that brings msg to topic. The relay puts its id into the header event-id: it is what stood
// there, or, where nothing stood, the id by which the consumer knows the event. Headers for which drop is true are left
// out.
func eventOf(msg *consumer.Message, topic string, drop func(name string) bool) outbox.Event {
	e := outbox.Event{ID: msg.EventID, Topic: topic, Key: msg.Key, Value: msg.Value}
	if own, ok := msg.Header(outbox.IDHeader); ok && len(own) > 0 {
		e.ID = string(own)
	}
	for _, h := range msg.Headers {
		if h.Key != outbox.IDHeader && !drop(h.Key) {
			e.Headers = append(e.Headers, outbox.Header(h))
		}
	}
	return e
}

// asConsumed is the message that consumers get of e.
func asConsumed(e outbox.Event) *consumer.Message {
	msg := &consumer.Message{Topic: e.Topic, Key: e.Key, Value: e.Value,
		Headers: []consumer.Header{{Key: outbox.IDHeader, Value: []byte(e.ID)}}}
	for _, h := range e.Headers {
		msg.Headers = append(msg.Headers, consumer.Header(h))
	}
	return msg
}

// write writes e. The error of a table, a column or a privilege that is missing is Misconfigured: no message is to
// blame for it.
func write[Tx any](ctx context.Context, events Events[Tx], tx Tx, e outbox.Event) error {
	err := events.Write(ctx, tx, e)
	if err == nil || errors.Is(err, outbox.ErrInvalidEvent) {
		return err
	}
	err = fmt.Errorf("forward: write to the outbox: %w", err)
	class := sqlclass.Of(err)
	if class == dedupstore.Misconfigured || errors.Is(err, outbox.ErrSwallowed) {
		return dedupstore.WithClass(dedupstore.Misconfigured,
			fmt.Errorf("%w: einmal schema check outbox says what is missing; the tables are what this prints: einmal schema print -db postgres outbox", err))
	}
	if class != dedupstore.Unclassified {
		return dedupstore.WithClass(class, err)
	}
	return err
}
