package deadletter

import (
	"encoding/base64"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/version"
)

// Record is a message that was given up, and why.
type Record struct {
	ID int64 // of the row; 0 before it is written

	// Consumer and Event are the key of the record in processed_event. Event is the event's id, or where there is none
	// that can be recorded, the message's place: see Place.
	Consumer, Event string

	Group     string
	Topic     string
	TopicID   string // as Kafka's tools write it, empty if it is not known
	Partition int32
	Offset    int64
	Timestamp time.Time // zero if the message has none, or one outside of the years 1 to 9999

	// Key, Value and Headers are the message's, byte by byte. A nil Key or Value is none.
	Key, Value []byte
	Headers    []consumer.Header
	Size       int64 // bytes of key, value and headers
	LeftOut    bool  // they are not here, because they were larger than the table's Config.MaxBytes, or by DeadLetterConfig.WithoutMessage

	Kind         Kind
	ErrorType    string    // one of few words: a name, an SQLSTATE, or a Go type
	Error        string    // see Text
	Attempts     int       // with those in the topics that handed the message on
	FirstAttempt time.Time // of all of them
	Died         time.Time // when the row was written, by the database's clock
	Version      string    // of einmal
	TraceID      string    // of the attempt that was the last, empty if it was not traced

	Earlier bool // it was handed on by another topic of ours: see consumer.Message.Earlier. It is in no table

	Redrives     int    // that have failed
	RedriveError string // of the last of them, see Text
}

// DedupKey is the key of the record in processed_event.
func (r *Record) DedupKey() dedupstore.Key {
	return dedupstore.Key{Consumer: r.Consumer, Event: r.Event}
}

// AtPlace reports whether Event is made of where the message stands, by Place, PlaceUUID or consumer.OffsetID, so that
// a copy of the message would have another one.
func (r *Record) AtPlace() bool {
	msg := r.Message()
	id, err := consumer.OffsetID(msg)
	return Reserved(r.Event) || err == nil && r.Event == id
}

// NewRecord returns a Record of msg under key. It shares the message's bytes.
func NewRecord(msg *consumer.Message, key dedupstore.Key) *Record {
	r := &Record{
		Consumer: key.Consumer, Event: key.Event,
		Group: msg.Group, Topic: msg.Topic, Partition: msg.Partition, Offset: msg.Offset, Timestamp: storable(msg.Timestamp),
		Key: msg.Key, Value: msg.Value, Headers: msg.Headers, Size: size(msg),
		Attempts: msg.Attempt, FirstAttempt: storable(msg.FirstAttempt), Version: version.Of(),
	}
	if e := msg.Earlier; e != nil {
		r.Earlier = true
		r.Attempts += e.Attempts
		if first := storable(e.FirstAttempt); !first.IsZero() {
			r.FirstAttempt = first
		}
	}
	if msg.TopicID != (consumer.TopicID{}) {
		r.TopicID = msg.TopicID.String()
	}
	return r
}

func size(msg *consumer.Message) int64 {
	n := len(msg.Key) + len(msg.Value)
	for _, h := range msg.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// storable returns t if every database can hold it. A producer may set any number.
func storable(t time.Time) time.Time {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// Message returns the message as a handler sees it in its first attempt. Its EventID is the Event of the Record.
func (r *Record) Message() *consumer.Message {
	msg := &consumer.Message{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Value: r.Value, Headers: r.Headers,
		Group: r.Group, Consumer: r.Consumer, EventID: r.Event,
		Attempt: 1, FirstAttempt: time.Now(),
	}
	if id, err := base64.RawURLEncoding.DecodeString(r.TopicID); err == nil && len(id) == len(msg.TopicID) {
		copy(msg.TopicID[:], id)
	}
	return msg
}
