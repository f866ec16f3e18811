package audit

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// factKind is what a fact says of its id. Their order is that in which the judge wants to hear of an id: messages come
// last, because there can be any number of them.
type factKind byte

const (
	factEffect  factKind = iota // the query has returned it
	factDead                    // a dead letter has it
	factBefore                  // it was recorded for the consumer before the effects were read
	factRecord                  // it is recorded for the consumer
	factHandOn                  // it is recorded that it was handed on to a retry topic
	factReturns                 // it is on its way back to the topic, or stands there behind the window
	factMessage                 // a message of the window has it
)

// Flags of a message.
const (
	flagNoID    = 1 << iota // the id is made of the message's place
	flagForeign             // the filter says that it is not for this consumer
	flagUntimed             // it has no time
)

// fact is a thing that was read about an id. Those of messages have the fields behind kind.
type fact struct {
	id   string
	kind factKind

	partition int32
	offset    int64
	millis    int64 // since 1970
	flags     byte
	value     [16]byte // a hash of key and value
}

const factLength = 1 + 4 + 8 + 8 + 1 + 16 // bytes, without the id

// append encodes what the fact says of its id, so that encoded facts are in order by kind, then by place.
func (f *fact) append(b []byte) []byte {
	b = append(b, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, uint32(f.partition)) //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(f.offset))    //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(f.millis))    //nolint:gosec // the bits
	return append(append(b, f.flags), f.value[:]...)
}

// decodeFact takes what append has made.
func decodeFact(id, rest []byte) (fact, error) {
	if len(rest) != factLength {
		return fact{}, errDamaged
	}
	f := fact{id: string(id), kind: factKind(rest[0]), flags: rest[21]}
	f.partition = int32(binary.BigEndian.Uint32(rest[1:])) //nolint:gosec // the bits
	f.offset = int64(binary.BigEndian.Uint64(rest[5:]))    //nolint:gosec // the bits
	f.millis = int64(binary.BigEndian.Uint64(rest[13:]))   //nolint:gosec // the bits
	copy(f.value[:], rest[22:])
	return f, nil
}

// valueHash tells messages under one id apart. Key and value count; headers do not, because tracing changes them on
// each way.
func valueHash(rec *topicwindow.Record) (sum [16]byte) {
	h := sha256.New()
	for _, part := range [][]byte{rec.Key, rec.Value} {
		length := int64(-1) // none is not empty
		if part != nil {
			length = int64(len(part))
		}
		_ = binary.Write(h, binary.BigEndian, length)
		_, _ = h.Write(part)
	}
	copy(sum[:], h.Sum(nil))
	return sum
}
