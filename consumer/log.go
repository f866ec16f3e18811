package consumer

import (
	"log/slog"
	"sync"
	"time"
)

// Names of log attributes: OpenTelemetry's for messaging.
const (
	attrGroup     = "messaging.consumer.group.name"
	attrTopic     = "messaging.destination.name"
	attrPartition = "messaging.destination.partition.id"
	attrOffset    = "messaging.kafka.offset"
)

// brokerErrors logs the errors of the Kafka client. A broker that is away makes one per partition and second, all alike, so the
// same text is logged once in a while, with the number of times that it was left out.
type brokerErrors struct {
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex
	last map[string]*repeated
}

type repeated struct {
	at   time.Time
	more int
}

const maxTexts = 100 // beyond it all counts start again

func newBrokerErrors(log *slog.Logger) *brokerErrors {
	return &brokerErrors{log: log, every: 10 * time.Second, last: map[string]*repeated{}}
}

func (b *brokerErrors) warn(err error) {
	text := err.Error()
	b.mu.Lock()
	defer b.mu.Unlock()
	r, now := b.last[text], time.Now()
	if r != nil && now.Sub(r.at) < b.every {
		r.more++
		return
	}
	attrs := []any{slog.Any("error", err)}
	if r != nil && r.more > 0 {
		attrs = append(attrs, slog.Int("repeated", r.more))
	}
	if r == nil && len(b.last) >= maxTexts {
		clear(b.last)
	}
	b.last[text] = &repeated{at: now}
	b.log.Warn("einmal: the Kafka client reports an error, it goes on by itself", attrs...)
}
