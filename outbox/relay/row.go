package relay

import (
	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
)

// row is a row of outbox_event on its way to Kafka.
type row struct {
	id        int64
	ctid      string // where it stands in the table, as long as it is locked
	bucket    int64
	epoch     int64 // of the lease, in two-phase mode
	topic     string
	key       []byte
	size      int // of the record, about
	claims    int64
	eventID   string
	payload   []byte
	headers   []outbox.Header
	named     *int64 // the partition that the event names
	partition int32

	outcome outcome
	err     error // of a row that failed, or why it was not sent
}

// parts are what a text may repeat of the event.
func (r *row) parts() [][]byte {
	parts := [][]byte{r.key, r.payload}
	for _, h := range r.headers {
		parts = append(parts, h.Value)
	}
	return parts
}

// outcome is what became of a row in a batch.
type outcome int

const (
	notSent outcome = iota // it may be sent later, or Kafka may have it although that is not known
	acked                  // Kafka has it
	failed                 // it can never be sent as it is
)

// orderKey tells the keys of all topics apart; "" is no key.
func (r *row) orderKey() string {
	if r.key == nil {
		return ""
	}
	return r.topic + "\x00" + string(r.key)
}

func (r *row) to() topicPartition { return topicPartition{r.topic, r.partition} }

// fail marks a row that can never be sent as it is.
func (r *row) fail(err error) { r.outcome, r.err = failed, err }

// record is what Kafka gets. event-id comes first.
func (r *row) record() *sarama.Record {
	headers := make([]*sarama.RecordHeader, 0, len(r.headers)+1)
	headers = append(headers, &sarama.RecordHeader{Key: []byte(outbox.IDHeader), Value: []byte(r.eventID)})
	for _, h := range r.headers {
		headers = append(headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return &sarama.Record{Key: r.key, Value: r.payload, Headers: headers}
}

// blockedKeys is a set of keys that are blocked: nothing of them may be sent any more in this batch, because
// something before it was not.
type blockedKeys map[string]struct{}

// add blocks the key of a row, if it has one.
func (k blockedKeys) add(r *row) {
	if key := r.orderKey(); key != "" {
		k[key] = struct{}{}
	}
}

func (k blockedKeys) has(r *row) bool {
	_, has := k[r.orderKey()]
	return has
}

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}
