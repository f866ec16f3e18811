package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
)

// Place names a message by where it stands, for a dead letter whose event has no id: as consumer.OffsetID does, by the topic's id, the
// partition and the offset. Where the brokers tell no topic's id, before Kafka 2.8, it is the topic's name and a hash of the message,
// so that a topic which is created again has other places.
func Place(msg *consumer.Message) string {
	if id, err := consumer.OffsetID(msg); err == nil {
		return id
	}
	return fmt.Sprintf("%s/%d/%d/%s", msg.Topic, msg.Partition, msg.Offset, digest(msg))
}

// PlaceUUID names a message by where it stands, as Place does, in the form of a UUIDv7 of the message's own time: for a table whose ids
// are UUIDs, or that is partitioned by ranges of UUIDv7. There it falls into the partition of events of that time, and is dropped with
// them. It is always the same for a message, and another one for each: 74 of its bits are a hash of the place. ok is false for a message
// without a time, of which nobody can tell a partition.
func PlaceUUID(msg *consumer.Message) (id string, ok bool) {
	ms := msg.Timestamp.UnixMilli()
	if msg.Timestamp.IsZero() || ms < 0 || ms >= 1<<48 {
		return "", false
	}
	sum := sha256.Sum256([]byte(Place(msg)))
	b := sum[:16]
	binary.BigEndian.PutUint64(b, uint64(ms)<<16|uint64(sum[6])<<8|uint64(sum[7]))
	b[6], b[8] = 0x70|b[6]&0x0f, 0x80|b[8]&0x3f
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), true
}

// digest is a hash of what a message is made of.
func digest(msg *consumer.Message) string {
	h := sha256.New()
	part := func(b []byte) {
		_, _ = h.Write(binary.AppendVarint(nil, int64(len(b))))
		_, _ = h.Write(b)
	}
	part(binary.AppendVarint(nil, msg.Timestamp.UnixMilli()))
	part(msg.Key)
	part(msg.Value)
	for _, header := range msg.Headers {
		part([]byte(header.Key))
		part(header.Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
