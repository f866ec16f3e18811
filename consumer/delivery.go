package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Check asks the links of all chains whether they will work, as Run does at its start: whether the table of a store is
// there, for example. Links whose servers do not answer yet are asked again until ctx is done.
func (c *Consumer) Check(ctx context.Context) error {
	return c.newStarter(slices.Sorted(maps.Keys(c.topics)), nil).checkLinks(ctx)
}

// Deliver takes msg for delivery to the chain of its topic without a broker. Each call is a delivery of its own, as
// after a rebalance or a restart: attempts are counted anew. msg is copied; what the runner knows is filled in at each
// attempt, except TopicID, which only a broker can tell.
//
// It is what package consumertest is made of, and serves tools that hand messages from elsewhere to their handlers. It
// does not need Run, and may be called beside it, from any goroutine. The error is about a topic that is not in
// Config.Topics.
func (c *Consumer) Deliver(msg *Message) (*Delivery, error) {
	t, ok := c.topics[msg.Topic]
	if !ok {
		return nil, fmt.Errorf("einmal: Config.Topics has no topic %q: correct Message.Topic, or add the topic", msg.Topic)
	}
	t.assigned(msg.Partition)
	return &Delivery{topic: t, msg: *msg}, nil
}

// Delivery is one message on its way through the chain of its topic, attempt by attempt, as a partition's owner makes
// them. It must not be used by two goroutines at once.
type Delivery struct {
	topic   *topic
	msg     Message
	history history
}

// Attempt is one attempt at a message, and what the runner makes of it.
type Attempt struct {
	Message *Message // as the chain saw it and left it, with its Result

	// Err is what the chain returned: nil if the message has taken effect, so that its offset may be committed. A panic is
	// a *Panic.
	Err error

	// Again says that another attempt follows, not before Delay has passed: the chain asked for it (RetryAfter,
	// NotBefore), or OnFailure is KeepTrying. If it is false and Err is not nil, Run would end with a *StopError; or ctx
	// was done, and the message stays uncommitted for the partition's next owner.
	Again bool
	Delay time.Duration
}

// Attempt makes the next attempt, as Run does: on a message of its own, with the facts filled in, with what the chain
// does to its goroutine contained, under ctx with the message in it. It does not wait for the Delay of the attempt
// before. After an attempt that has no other behind it the delivery is over.
func (d *Delivery) Attempt(ctx context.Context) *Attempt {
	a := &Attempt{Message: d.message()}
	done := make(chan struct{})
	go func() { // a goroutine of its own, which the chain may end with runtime.Goexit
		defer close(done)
		returned := false
		defer func() {
			if !returned {
				a.Err = exited(a.Message)
			}
		}()
		a.Err = d.topic.attempt(WithMessage(ctx, a.Message), a.Message, &d.history)
		returned = true
	}()
	<-done
	if f := d.topic.judge(ctx, d.msg.Offset, d.history, a.Err); f != nil {
		d.history.note(f)
		a.Again, a.Delay = !f.RetryAt.IsZero(), f.delay
	}
	return a
}

// message makes the Message of one attempt.
func (d *Delivery) message() *Message {
	m := d.msg
	m.Key, m.Value, m.Headers = slices.Clip(m.Key), slices.Clip(m.Value), slices.Clone(m.Headers)
	for i := range m.Headers {
		m.Headers[i].Value = slices.Clip(m.Headers[i].Value)
	}
	return &m
}
