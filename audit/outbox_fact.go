package audit

import (
	"encoding/binary"
)

// rowState is what a row of the outbox is.
type rowState byte

const (
	rowWaiting   rowState = iota // PENDING or PUBLISHING
	rowBlocked                   // BLOCKED
	rowDead                      // DEAD
	rowPublished                 // PUBLISHED
)

// rowFact is a row of the outbox.
type rowFact struct {
	id        string
	number    int64
	state     rowState
	judged    bool  // it is PUBLISHED, and in the window
	created   int64 // milliseconds since 1970
	published int64 // 0 if it is not
	hasKey    bool
	key       [16]byte // a hash
	hasValue  bool     // not read of rows that are older than the window
	value     [16]byte // a hash of key and value
}

// sentFact is a message of the topic.
type sentFact struct {
	id        string
	partition int32
	offset    int64
	millis    int64 // since 1970
	flags     byte
	value     [16]byte // a hash of key and value
}

// The first byte of what is said of an id. Rows come first, because there can be any number of messages.
const (
	isRow byte = iota
	isSent
)

const (
	rowLength  = 1 + 8 + 1 + 1 + 8 + 8 + 1 + 16 + 1 + 16 // bytes, without the id
	sentLength = 1 + 4 + 8 + 8 + 1 + 16
)

// append encodes the row: those of an id are in the order of their numbers then.
func (r *rowFact) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, isRow), uint64(r.number)) //nolint:gosec // the bits
	b = append(b, byte(r.state), bit(r.judged))
	b = binary.BigEndian.AppendUint64(b, uint64(r.created))   //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(r.published)) //nolint:gosec // the bits
	b = append(append(b, bit(r.hasKey)), r.key[:]...)
	return append(append(b, bit(r.hasValue)), r.value[:]...)
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func decodeRow(id, b []byte) (r rowFact, err error) {
	if len(b) != rowLength {
		return r, errDamaged
	}
	r = rowFact{id: string(id), state: rowState(b[9]), judged: b[10] == 1, hasKey: b[27] == 1, hasValue: b[44] == 1}
	r.number = int64(binary.BigEndian.Uint64(b[1:]))     //nolint:gosec // the bits
	r.created = int64(binary.BigEndian.Uint64(b[11:]))   //nolint:gosec // the bits
	r.published = int64(binary.BigEndian.Uint64(b[19:])) //nolint:gosec // the bits
	copy(r.key[:], b[28:])
	copy(r.value[:], b[45:])
	return r, nil
}

// append encodes the message: those of an id are in the order of their places then.
func (s *sentFact) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, isSent), uint32(s.partition)) //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(s.offset))                    //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(s.millis))                    //nolint:gosec // the bits
	return append(append(b, s.flags), s.value[:]...)
}

func decodeSent(id, b []byte) (s sentFact, err error) {
	if len(b) != sentLength {
		return s, errDamaged
	}
	s = sentFact{id: string(id), flags: b[21]}
	s.partition = int32(binary.BigEndian.Uint32(b[1:])) //nolint:gosec // the bits
	s.offset = int64(binary.BigEndian.Uint64(b[5:]))    //nolint:gosec // the bits
	s.millis = int64(binary.BigEndian.Uint64(b[13:]))   //nolint:gosec // the bits
	copy(s.value[:], b[22:])
	return s, nil
}

func (s *sentFact) place() Place { return placeAt(s.partition, s.offset, s.millis, s.flags) }

// placed is an event with a key, where it stands first.
type placed struct {
	partition int32
	offset    int64
	number    int64 // of its row
	id        string
}

const placedLength = 4 + 8 + 8 // bytes, without the id

// append encodes the event: those of a key are in the order of the topic then.
func (p *placed) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(p.partition)) //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(p.offset))    //nolint:gosec // the bits
	b = binary.BigEndian.AppendUint64(b, uint64(p.number))    //nolint:gosec // the bits
	return append(b, p.id...)
}

func decodePlaced(b []byte) (p placed, err error) {
	if len(b) < placedLength {
		return p, errDamaged
	}
	p.partition = int32(binary.BigEndian.Uint32(b))   //nolint:gosec // the bits
	p.offset = int64(binary.BigEndian.Uint64(b[4:]))  //nolint:gosec // the bits
	p.number = int64(binary.BigEndian.Uint64(b[12:])) //nolint:gosec // the bits
	p.id = string(b[placedLength:])
	return p, nil
}

func (p *placed) place() Place { return Place{Partition: p.partition, Offset: p.offset} }
