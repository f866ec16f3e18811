package consumer

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/einmal-go/einmal/internal/errtype"
)

// DefaultEventIDHeader is the header that holds the event's id unless Topic.EventID says otherwise.
const DefaultEventIDHeader = "event-id"

// ErrNoEventID is wrapped by the error for a message in which the id of its event is missing, empty or unreadable.
var ErrNoEventID = errtype.New("no_event_id", "no event id")

// eventIDMistake is the error of a function for Topic.EventID that was made of arguments which cannot be meant. New
// finds it.
type eventIDMistake string

func (e eventIDMistake) Error() string { return string(e) }

// probe is the message with which New asks whether a Topic.EventID was made by mistake.
var probe = &Message{}

// ours are the names of the functions that can tell a mistake. Those of users are not called without a message.
var ours = regexp.MustCompile(`^` + regexp.QuoteMeta(reflect.TypeFor[Message]().PkgPath()) +
	`\.(mistaken|CompositeID)\.func`)

// mistaken returns a function for Topic.EventID that fails with a mistake. It keeps its name where it is not inlined.
//
//go:noinline
func mistaken(text string) func(*Message) (string, error) {
	err := fmt.Errorf("%w: %w", ErrNoEventID, eventIDMistake(text))
	return func(*Message) (string, error) { return "", err }
}

// eventIDMistakes returns what is wrong with a function for Topic.EventID itself.
func eventIDMistakes(eventID func(*Message) (string, error)) (mistakes []error) {
	if f := runtime.FuncForPC(reflect.ValueOf(eventID).Pointer()); f == nil || !ours.MatchString(f.Name()) {
		return nil
	}
	_, err := eventID(probe)
	for _, err := range flatten(err) {
		if mistake, ok := errors.AsType[eventIDMistake](err); ok {
			mistakes = append(mistakes, mistake)
		}
	}
	return mistakes
}

// HeaderID returns a function for Topic.EventID that takes the id from the header with that name, the last one if the
// header is repeated. Names of headers are case-sensitive in Kafka. A header that is missing or empty is an error that
// wraps ErrNoEventID.
//
// The id is taken as it stands; whether it can be recorded is checked when it is: see dedupstore.Key. It must be unique
// among all events of the topic. Where several producers number their events each for itself, join it with what names
// the producer: see CompositeID.
func HeaderID(name string) func(*Message) (string, error) {
	if name == "" {
		return mistaken("HeaderID has no name: pass that of the header")
	}
	missing := fmt.Errorf("%w: header %q is missing: let the producer set it, or set Topic.EventID to where the id stands",
		ErrNoEventID, name)
	empty := fmt.Errorf("%w: header %q is empty: let the producer give every event an id of its own", ErrNoEventID, name)
	return func(msg *Message) (string, error) {
		value, ok := msg.Header(name)
		switch {
		case !ok:
			return "", otherCase(msg, name, missing)
		case len(value) == 0:
			return "", empty
		}
		return string(value), nil
	}
}

// otherCase says so where a header has the name in other letters: to Kafka they are two.
func otherCase(msg *Message, name string, missing error) error {
	for _, h := range msg.Headers {
		if strings.EqualFold(h.Key, name) {
			return fmt.Errorf("%w: header %q is missing, and %q differs from it in case only: names of headers are told apart by case, so pass this one to HeaderID", ErrNoEventID, name, h.Key)
		}
	}
	return missing
}

// CompositeID returns a function for Topic.EventID that joins what its parts return, such as the name of the source and
// a number that is unique within it:
//
//	EventID: consumer.CompositeID(consumer.HeaderID("source"), consumer.HeaderID("event-id"))
//
// Different parts never make the same id, whatever is in them: they are joined by blanks, and a blank or a percent sign
// within one is written %20 or %25. An error of a part is the error of all.
//
//go:noinline
func CompositeID(parts ...func(*Message) (string, error)) func(*Message) (string, error) {
	if len(parts) == 0 {
		return mistaken("CompositeID has no parts: pass the functions whose ids it joins")
	}
	for i, part := range parts {
		if part == nil {
			return mistaken(fmt.Sprintf("CompositeID's part %d, counted from 0, is nil: pass a function, or leave it out", i))
		}
	}
	return func(msg *Message) (string, error) {
		if msg == probe {
			return "", errors.Join(partMistakes(parts)...)
		}
		ids := make([]string, len(parts))
		for i, part := range parts {
			var err error
			if ids[i], err = part(msg); err != nil {
				return "", err
			}
		}
		return composite(ids...), nil
	}
}

func partMistakes(parts []func(*Message) (string, error)) (mistakes []error) {
	for _, part := range parts {
		mistakes = append(mistakes, eventIDMistakes(part)...)
	}
	return mistakes
}

var escape = strings.NewReplacer("%", "%25", " ", "%20")

// composite joins parts so that they can be told apart again.
func composite(parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte(' ')
		}
		_, _ = escape.WriteString(&b, part)
	}
	return b.String()
}

// UniqueKeyID is a function for Topic.EventID that takes the record's key for the id. It is for topics whose key is the
// event's own, another one for each event. It is wrong where the key names an entity, such as a customer or an order,
// of which there are several events: all but the first would be taken for redeliveries of it, and lost.
//
// A key that is text is taken as it stands; any other, and one that begins like these, becomes \x and its bytes in hex.
// A key that is missing or empty is an error that wraps ErrNoEventID.
func UniqueKeyID(msg *Message) (string, error) {
	const binary = `\x`
	switch key := string(msg.Key); {
	case msg.Key == nil:
		return "", fmt.Errorf("%w: the record has no key: let the producer set it, or set Topic.EventID to where the id stands", ErrNoEventID)
	case key == "":
		return "", fmt.Errorf("%w: the record's key is empty: let the producer give every event a key of its own",
			ErrNoEventID)
	case strings.HasPrefix(key, binary), strings.Contains(key, "\x00"), !utf8.ValidString(key):
		return binary + hex.EncodeToString(msg.Key), nil
	default:
		return key, nil
	}
}

// OffsetID is a function for Topic.EventID that takes the record's place for the id: the topic's id, the partition and
// the offset. It needs nothing from the producer, and a topic that is deleted and created again begins anew. What it
// cannot do: an event that the producer sends twice has two places, and takes effect twice; and a copy of the topic, a
// mirror or a retry topic, has other places than the original.
//
// A broker before Kafka 2.8 tells no topic's id: that is an error that wraps ErrNoEventID.
func OffsetID(msg *Message) (string, error) {
	if msg.TopicID == (TopicID{}) {
		return "", fmt.Errorf("%w: the topic's id is not known, the brokers are older than Kafka 2.8: take the id from the event instead", ErrNoEventID)
	}
	b := append(make([]byte, 0, 64), msg.TopicID.String()...)
	b = strconv.AppendInt(append(b, '/'), int64(msg.Partition), 10)
	b = strconv.AppendInt(append(b, '/'), msg.Offset, 10)
	return string(b), nil
}

// String returns the id as Kafka's own tools write it.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }
