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
