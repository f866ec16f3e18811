package consumer

import (
	"slices"

	"github.com/IBM/sarama"
)

// item is a message on its way through a claim.
type item struct {
	rec *sarama.ConsumerMessage
	history
}

// message makes the Message of one attempt. Each attempt has its own, so that what a handler did to one is not seen by the
// next. Slices are cut to their length: sarama's have capacity that reaches into what follows them in the batch.
func (it *item) message() *Message {
	rec := it.rec
	m := &Message{
		Topic:     rec.Topic,
		Partition: rec.Partition,
		Offset:    rec.Offset,
		Key:       slices.Clip(rec.Key),
		Value:     slices.Clip(rec.Value),
		Timestamp: rec.Timestamp,
	}
	if len(rec.Headers) > 0 {
		m.Headers = make([]Header, 0, len(rec.Headers))
		for _, h := range rec.Headers {
			if h != nil {
				m.Headers = append(m.Headers, Header{Key: string(h.Key), Value: slices.Clip(h.Value)})
			}
		}
	}
	return m
}

// size is what the item keeps in memory, in bytes, roughly.
func (it *item) size() int {
	n := 256 + len(it.rec.Key) + len(it.rec.Value)
	for _, h := range it.rec.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return n
}
