package faulttest

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// plainConfig are sarama's defaults, but for what a member holds in memory and for its first offset.
func (m *member) plainConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "plain"
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.ChannelBufferSize = perSecond / 2
	holdLittle(c)
	m.network.install(c)
	return c
}

// plain is a member as sarama's documentation writes one. It joins again after 250 ms when it was thrown out, as any
// program would.
func (m *member) plain() (run func(context.Context) error, err error) {
	cg, err := sarama.NewConsumerGroup(m.brokers, m.group, m.plainConfig())
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(&m.log, nil))
	return func(ctx context.Context) error {
		read := make(chan struct{})
		go func() {
			defer close(read)
			for err := range cg.Errors() {
				log.Warn("error", slog.Any("error", err))
			}
		}()
		for ctx.Err() == nil {
			if err := cg.Consume(ctx, []string{m.topic}, plainHandler{m}); err != nil {
				log.Warn("consume", slog.Any("error", err))
				_ = sleep(ctx, 250*time.Millisecond)
			}
		}
		_ = cg.Close() // the last of the errors that were logged
		<-read
		return nil
	}, nil
}

type plainHandler struct{ *member }

func (plainHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (plainHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m plainHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.journal.held(hold{m.name, claim.Partition(), true, time.Now()})
	defer func() { m.journal.held(hold{m.name, claim.Partition(), false, time.Now()}) }()
	for {
		select {
		case <-s.Context().Done():
			return nil
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			began := time.Now()
			if m.work(s.Context()) != nil {
				return nil // it is not marked, and is delivered again
			}
			m.journal.effect(eventID(msg))
			m.journal.delivered(delivery{m.name, msg.Partition, msg.Offset, began, time.Now()})
			s.MarkMessage(msg, "")
		}
	}
}

func eventID(msg *sarama.ConsumerMessage) string {
	for _, h := range msg.Headers {
		if string(h.Key) == "event-id" {
			return string(h.Value)
		}
	}
	return ""
}
