package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/einmal-go/einmal/consumer"
)

// placePrefix is what no event's id may begin with: a producer that gave an event the place of a message to come would
// have the dead letter of that one taken for a duplicate.
const placePrefix = "einmal:place:"

// redrivenPrefix is that of messages without an id that are published again.
const redrivenPrefix = "einmal:redriven:"

// Reserved reports whether an id is of the form of a Place or a PlaceUUID: it must not be taken for an event's.
func Reserved(id string) bool {
	const variant = 19 // where the digit of a UUID stands that says which variant it is
	return strings.HasPrefix(id, placePrefix) ||
		len(id) == 36 && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-' &&
			strings.IndexByte("eEfF", id[variant]) >= 0
}

// Place names a message by where it stands, for a dead letter whose event has no id: by the topic's id, the partition
// and the offset, behind a prefix that the ids of events do not have, see Reserved. Where the brokers tell no topic's
// id, before Kafka 2.8, it is the topic's name and a hash of the message, so that a topic which is created again has
// other places.
func Place(msg *consumer.Message) string {
	if id, err := consumer.OffsetID(msg); err == nil {
		return placePrefix + id
	}
	return fmt.Sprintf("%s%s/%d/%d/%s", placePrefix, msg.Topic, msg.Partition, msg.Offset, digest(msg))
}

// PlaceUUID names a message by where it stands, as Place does, in the form of a UUIDv7 of the message's own time: for a
// table whose ids are UUIDs, or that is partitioned by ranges of UUIDv7. There it falls into the partition of events of
// that time, and is dropped with them. It is always the same for a message, and another one for each: 73 of its bits
// are a hash of the place. Its variant is the one that RFC 9562 reserves, so that it is no UUID of a producer's, see
// Reserved. ok is false for a message without a time, of which nobody can tell a partition.
func PlaceUUID(msg *consumer.Message) (id string, ok bool) {
	ms := msg.Timestamp.UnixMilli()
	if msg.Timestamp.IsZero() || ms < 0 || ms >= 1<<48 {
		return "", false
	}
	sum := sha256.Sum256([]byte(Place(msg)))
	b := sum[:16]
	binary.BigEndian.PutUint64(b, uint64(ms)<<16|uint64(sum[6])<<8|uint64(sum[7]))
	b[6], b[8] = 0x70|b[6]&0x0f, 0xe0|b[8]&0x1f
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), true
}

// RedrivenID is the id by which a consumer knows a message without one that is published again, by the id of its dead
// letter: a Place or a PlaceUUID. It is not Reserved, of the form of a UUID if place is, and always the same, so that
// what is published twice takes effect once. Another id it returns as it is.
func RedrivenID(place string) string {
	const variant = 19
	switch {
	case strings.HasPrefix(place, placePrefix):
		return redrivenPrefix + strings.TrimPrefix(place, placePrefix)
	case Reserved(place):
		digit, _ := strconv.ParseUint(place[variant:variant+1], 16, 8)
		return place[:variant] + strconv.FormatUint(digit-4, 16) + place[variant+1:] // the variant of UUIDs: 8 to b
	}
	return place
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
