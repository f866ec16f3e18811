package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// factKind is what a fact says of its id. Their order is that in which the judge wants to hear of an id: messages come last, because
// there can be any number of them.
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

const (
	idLength    = 4 // bytes
	restLength  = 1 + 4 + 8 + 8 + 1 + 16
	maxFactSize = 1 << 20 // more than an id in any database is long
)

// append encodes the fact so that encoded facts are in order by compareFacts.
func (f *fact) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.id))) //nolint:gosec // ids are short, see add
	b = append(append(b, f.id...), byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, uint32(f.partition)) //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(f.offset))    //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(f.millis))    //nolint:gosec // the bits
	return append(append(b, f.flags), f.value[:]...)
}

func (f *fact) size() int { return idLength + len(f.id) + restLength }

// decodeFact takes what append has made.
func decodeFact(b []byte) (fact, error) {
	if len(b) < idLength+restLength || len(b) != idLength+restLength+int(binary.BigEndian.Uint32(b)) {
		return fact{}, fmt.Errorf("a sorted file of the audit is damaged: %d bytes are no fact", len(b))
	}
	id, rest := b[idLength:len(b)-restLength], b[len(b)-restLength:]
	f := fact{id: string(id), kind: factKind(rest[0]), flags: rest[21]}
	f.partition = int32(binary.BigEndian.Uint32(rest[1:])) //nolint:gosec // the bits
	f.offset = int64(binary.BigEndian.Uint64(rest[5:]))    //nolint:gosec // the bits
	f.millis = int64(binary.BigEndian.Uint64(rest[13:]))   //nolint:gosec // the bits
	copy(f.value[:], rest[22:])
	return f, nil
}

// compareFacts orders encoded facts by id, then by kind, then by place.
func compareFacts(a, b []byte) int {
	endA, endB := len(a)-restLength, len(b)-restLength
	if c := bytes.Compare(a[idLength:endA], b[idLength:endB]); c != 0 {
		return c
	}
	return bytes.Compare(a[endA:], b[endB:])
}

// valueHash tells messages under one id apart. Key and value count; headers do not, because tracing changes them on each way.
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
