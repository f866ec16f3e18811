// Package wire has what the codecs share: Confluent's wire format, and errors that name a schema and a field and never
// show a byte of a value.
package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/einmal-go/einmal/consumer"
)

// header is Confluent's: a zero byte, the schema's id in four, and for Protobuf the path to the message in its file.
var header sr.ConfluentHeader

// maxDepth is how deep a message may be nested in others: more is not a path but something else.
const maxDepth = 64

// errHeader says that a value has no header.
var errHeader = errors.New("it does not begin with a zero byte and a schema's id, as Confluent's wire format does: where producers write the bytes alone, use Plain")

// Split returns the id of the value's schema, and what follows it.
func Split(value []byte) (id int, rest []byte, err error) {
	if id, rest, err = header.DecodeID(value); err != nil {
		return 0, nil, errHeader
	}
	return id, rest, nil
}

// SplitIndex returns the path to the message in its file, and what follows it. Rest is what Split returned.
func SplitIndex(rest []byte) (index []int, value []byte, err error) {
	if index, value, err = header.DecodeIndex(rest, maxDepth); err != nil {
		return nil, nil, errors.New("the path of its message in the schema cannot be read")
	}
	return index, value, nil
}

// Join returns a value in the wire format. Index is nil but for Protobuf.
func Join(id int, index []int, value []byte) []byte {
	b, _ := header.AppendEncode(make([]byte, 0, len(value)+8), id, index) // which has no error
	return append(b, value...)
}

// Error says that a value could not be decoded. It wraps consumer.ErrUndecodable.
type Error struct {
	Format string // Avro or Protobuf
	Type   string // Go type of the event
	ID     int    // of the schema; 0 if there is none, or none could be read
	Field  string // path of the field; empty if unknown
	Reason string // without a byte of the value
	Err    error  // may have bytes of the value; nil if there is none
}

// Error never contains a part of the value.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "decode %s into %s", e.Format, e.Type)
	if e.ID != 0 {
		fmt.Fprintf(&b, ", schema %d", e.ID)
	}
	if e.Field != "" {
		b.WriteString(", field " + e.Field)
	}
	return b.String() + ": " + e.Reason
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is finds consumer.ErrUndecodable.
func (e *Error) Is(target error) bool { return target == consumer.ErrUndecodable }
