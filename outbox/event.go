package outbox

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/einmal-go/einmal/internal/topicname"
	"github.com/einmal-go/einmal/outbox/internal/recordsize"
)

// Event is a message for Kafka.
type Event struct {
	// ID is what consumers recognise the event by, however often it is sent: the relay puts it into the header
	// event-id. It is UTF-8 text of 1 to MaxIDLen bytes without NUL. Default: a UUID of version 7.
	ID string

	// Topic is where it goes. The topic must exist when the event is sent: it is not created. Required.
	Topic string

	// Key orders events and chooses the partition: events of one topic and key are sent in the order in which their
	// writers committed, as far as those serialise, see WriterConfig.LockKeys. Nil is no key, and no order. A key of
	// no bytes is a key.
	Key []byte

	// Partition is where it goes, whatever its key, as long as the topic has that partition; nil has the key choose.
	// Set it to have a message return to where it was: the relay's partitioner may be another than that of its first
	// producer. Consumers see events of one key that are in two partitions in any order. Default: nil.
	Partition *int32

	// Value is the message. Nil is a tombstone, which is not the same as a value of no bytes.
	Value []byte

	// Headers are sent in this order, repetitions too, after event-id. Their trace context (traceparent, tracestate)
	// is that of the context of Write unless they have one.
	Headers []Header
}

// Header is a header of a Kafka record. A nil Value is sent as null.
type Header struct {
	Key   string
	Value []byte
}

// IDHeader is the header with Event.ID, the one in which einmal's consumer looks for it.
const IDHeader = "event-id"

// Limits of an Event.
const (
	// MaxIDLen is the longest Event.ID in bytes: what dedup stores can hold.
	MaxIDLen = 1024
	// MaxHeaders is how many headers an event may have. Each costs every consumer time and memory; Kafka itself has
	// no limit.
	MaxHeaders = 1000
	// DefaultMaxBytes is the largest record that is written, its key, value and headers together, in bytes. It is
	// below the largest that Kafka takes by default, 1,048,588, and what Go's client sends by default.
	DefaultMaxBytes = 1_000_000
)

// ErrInvalidEvent is wrapped by the error of Write for an event that could not be sent. Nothing was written.
var ErrInvalidEvent = errors.New("invalid event")

// NewID returns a UUID of version 7: what Event.ID is by default.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := uint64(max(0, time.Now().UnixMilli()))
	binary.BigEndian.PutUint64(b[:8], ms<<16|uint64(b[6])<<8|uint64(b[7]))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	text := make([]byte, 36)
	hex.Encode(text, b[:4])
	hex.Encode(text[9:], b[4:6])
	hex.Encode(text[14:], b[6:8])
	hex.Encode(text[19:], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}

// validate reports what would keep e from being sent, without repeating anything of it but its topic.
func (e *Event) validate(maxBytes int) error {
	err := errors.Join(validateID(e.ID), validateTopic(e.Topic), validatePartition(e.Partition),
		validateHeaders(e.Headers))
	if err != nil {
		return err
	}
	if size := e.size(); size > maxBytes {
		return fmt.Errorf("%w: key, value and headers have %d bytes, at most %d are allowed: put large values elsewhere "+
			"and send a reference, or raise MaxBytes together with the topic's max.message.bytes", ErrInvalidEvent, size,
			maxBytes)
	}
	return nil
}

func validateID(id string) error {
	switch {
	case len(id) > MaxIDLen:
		return fmt.Errorf("%w: the id has %d bytes, at most %d are allowed: use a shorter one or a hash of it",
			ErrInvalidEvent, len(id), MaxIDLen)
	case !utf8.ValidString(id) || strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w: the id is not UTF-8 text without NUL: encode binary ids, in hex for example",
			ErrInvalidEvent)
	}
	return nil
}

func validateTopic(topic string) error {
	if err := topicname.Check(topic); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	return nil
}

func validatePartition(p *int32) error {
	if p != nil && *p < 0 {
		return fmt.Errorf("%w: its partition is %d: name one from 0 on, or leave it out to have the key choose",
			ErrInvalidEvent, *p)
	}
	return nil
}

func validateHeaders(headers []Header) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("%w: it has %d headers, at most %d are allowed: put them into the value",
			ErrInvalidEvent, len(headers), MaxHeaders)
	}
	for i, h := range headers {
		switch {
		case h.Key == "":
			return fmt.Errorf("%w: header %d has no name", ErrInvalidEvent, i+1)
		case !utf8.ValidString(h.Key):
			return fmt.Errorf("%w: the name of header %d is not UTF-8", ErrInvalidEvent, i+1)
		case h.Key == IDHeader:
			return fmt.Errorf("%w: header %d is %s: leave it out and set Event.ID", ErrInvalidEvent, i+1, IDHeader)
		}
	}
	return nil
}

// size is the most that the record takes, alone in a record batch. It is never less than what the relay takes it for.
func (e *Event) size() int {
	size := recordsize.Batch + recordsize.Record + len(e.Key) + len(e.Value)
	size += 2*recordsize.Header + len(IDHeader) + len(e.ID)
	for _, h := range e.Headers {
		size += recordsize.Header + len(h.Key) + len(h.Value)
	}
	return size
}

// withTrace returns the headers with the trace context of ctx.
func withTrace(ctx context.Context, headers []Header) []Header {
	for _, h := range headers {
		if h.Key == "traceparent" {
			return headers
		}
	}
	c := carrier{slices.Clip(headers)}
	propagation.TraceContext{}.Inject(ctx, &c)
	return c.headers
}

// carrier lets a propagator read and write headers.
type carrier struct{ headers []Header }

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	for _, h := range c.headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) { c.headers = append(c.headers, Header{key, []byte(value)}) }

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string {
	keys := make([]string, len(c.headers))
	for i, h := range c.headers {
		keys[i] = h.Key
	}
	return keys
}
