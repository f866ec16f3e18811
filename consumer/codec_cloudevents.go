package consumer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// CloudEvent is an event of CloudEvents 1.0: its attributes, and its data as E.
type CloudEvent[E any] struct {
	ID              string
	Source          string // ID is unique within it: see CloudEventID
	Type            string
	Subject         string            // empty if absent
	Time            time.Time         // when it happened, as the producer says; zero if absent
	DataContentType string            // empty if absent: JSON
	DataSchema      string            // empty if absent
	Extensions      map[string]string // all further attributes, by name; numbers and booleans as JSON writes them. Nil if there are none

	Data E
}

// ParseCloudEvent decodes a CloudEvent of the Kafka protocol binding 1.0, in binary mode (attributes in headers ce_*,
// data in the value) and in structured mode (both in the value, as JSON; the header content-type is
// application/cloudevents+json). It is passed to Decode or DecodeTx, and Topic.EventID is CloudEventID for such a
// topic:
//
//	func charge(ctx context.Context, tx pgx.Tx, event consumer.CloudEvent[OrderConfirmed]) error
//
//	consumer.Topic{
//		EventID: consumer.CloudEventID,
//		Handler: middleware.Dedup(store, consumer.DecodeTx(consumer.ParseCloudEvent, charge), nil),
//	}
//
// The data is decoded as JSON does, tags and refusals included; its content type must be one of JSON, or absent. An E
// that is []byte gets the data as it is, of whatever content type. Without data an E that is a pointer or []byte is
// nil, any other E is refused.
//
// It refuses, by an error that wraps ErrUndecodable: a message without the attributes id, source, type and specversion,
// another version than 1.0, a batch, which the binding does not have, a format other than JSON, and attributes that are
// not what the specification says. The message is not guessed to be a CloudEvent where neither header says so.
func ParseCloudEvent[E any](msg *Message) (event CloudEvent[E], err error) {
	e, err := openCloudEvent(msg)
	if err != nil {
		return event, err
	}
	event = CloudEvent[E]{
		ID: e.take("id"), Source: e.take("source"), Type: e.take("type"), Subject: e.take("subject"),
		DataContentType: e.take("datacontenttype"), DataSchema: e.take("dataschema"),
	}
	version, at := e.take("specversion"), e.take("time")
	switch {
	case version == "":
		return CloudEvent[E]{}, cloudEventError("the attribute specversion is missing or empty")
	case version != "1.0":
		return CloudEvent[E]{}, cloudEventError("its specversion is not 1.0, which alone is read: let the producer send that, or pass a decoder of your own")
	case event.ID == "" || event.Source == "" || event.Type == "":
		return CloudEvent[E]{}, cloudEventError("one of the attributes id, source and type is missing or empty")
	}
	if at != "" {
		if event.Time, err = time.Parse(time.RFC3339, at); err != nil {
			return CloudEvent[E]{}, cloudEventError("the attribute time is not a time of RFC 3339")
		}
	}
	if len(e.attributes) > 0 {
		event.Extensions = e.attributes
	}
	if event.Data, err = decodeData[E](e, event.DataContentType); err != nil {
		return CloudEvent[E]{}, err
	}
	return event, nil
}

// openedCloudEvent is a CloudEvent of either mode.
type openedCloudEvent struct {
	attributes map[string]string // without the prefix of headers
	data       []byte            // nil if there is none
	quoted     bool              // data is a value of JSON, whatever the content type: a string of it, unless that is one of JSON
}

func (e *openedCloudEvent) take(name string) string {
	value := e.attributes[name]
	delete(e.attributes, name)
	return value
}

func cloudEventError(reason string) error {
	return &DecodeError{Type: "a CloudEvent", reason: reason}
}

func openCloudEvent(msg *Message) (*openedCloudEvent, error) {
	switch format := structured(msg); {
	case format == cloudEvents+"+json":
		return openStructured(msg.Value)
	case strings.HasPrefix(format, cloudEvents+"-batch"):
		return nil, cloudEventError("the message is a batch of CloudEvents, which the Kafka protocol binding does not have: let the producer send a message for each")
	case format != "":
		return nil, cloudEventError("in structured mode it is read as " + cloudEvents +
			"+json only: let the producer send that, or binary mode, or pass a decoder of your own")
	default:
		return openBinary(msg)
	}
}

// openBinary reads the headers. Their names are case-sensitive, but for content-type.
func openBinary(msg *Message) (*openedCloudEvent, error) {
	e := &openedCloudEvent{attributes: map[string]string{}, data: msg.Value}
	contentType := ""
	for _, header := range msg.Headers {
		switch name, ok := strings.CutPrefix(header.Key, "ce_"); {
		case strings.EqualFold(header.Key, "content-type"):
			contentType = string(header.Value)
		case !ok:
		case !utf8.Valid(header.Value):
			return nil, cloudEventError("an attribute is not valid UTF-8")
		default:
			e.attributes[name] = string(header.Value)
		}
	}
	if len(e.attributes) == 0 {
		return nil, cloudEventError("the message has neither headers ce_* (binary mode) nor the content type " + cloudEvents +
			"+json (structured mode): let the producer set them")
	}
	e.attributes["datacontenttype"] = contentType
	return e, nil
}

func openStructured(value []byte) (*openedCloudEvent, error) {
	e := &openedCloudEvent{attributes: map[string]string{}}
	seen := map[string]bool{}
	err := eachField(value, func(name string, value json.RawMessage) (err error) {
		if seen[name] {
			return errTwice
		}
		seen[name] = true
		switch name {
		case "data":
			e.data, e.quoted = value, true
		case "data_base64":
			e.data, err = fromBase64(value)
		default:
			err = e.attribute(name, value)
		}
		return err
	})
	switch {
	case errors.Is(err, errTwice):
		return nil, cloudEventError("a field of its object is there twice")
	case errors.Is(err, errType) || errors.Is(err, errUnicode):
		return nil, cloudEventError("an attribute is neither a string nor an integer nor a boolean, or not valid Unicode")
	case errors.Is(err, errBase64):
		return nil, cloudEventError("its data_base64 is not a string of base64")
	case err != nil:
		return nil, cloudEventError("in structured mode the value is not a JSON object")
	case seen["data"] && seen["data_base64"]:
		return nil, cloudEventError("it has both data and data_base64")
	}
	return e, nil
}

// attribute takes over an attribute. Null is the same as absent.
func (e *openedCloudEvent) attribute(name string, value json.RawMessage) error {
	text := string(value)
	switch {
	case text == "null":
		return nil
	case text == "true" || text == "false" || integer(value):
	default:
		var err error
		if text, err = jsonString(value); err != nil && !errors.Is(err, errEmpty) {
			return err
		}
	}
	e.attributes[name] = text
	return nil
}

var errBase64 = errors.New("it is not base64")

// fromBase64 returns nil for null.
func fromBase64(value json.RawMessage) ([]byte, error) {
	if isNull(value) {
		return nil, nil
	}
	text, err := jsonString(value)
	if err != nil && !errors.Is(err, errEmpty) {
		return nil, errBase64
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errBase64
	}
	return data, nil
}

func decodeData[E any](e *openedCloudEvent, contentType string) (data E, err error) {
	if plain, ok := any(&data).(*[]byte); ok {
		*plain, err = e.plain(contentType)
		return data, err
	}
	if !isJSON(contentType) {
		return data, cloudEventError("the content type of its data is none of JSON: let Data be []byte, and decode that")
	}
	if e.data == nil && reflect.TypeFor[E]().Kind() != reflect.Pointer {
		return data, cloudEventError("it has no data: let Data be a pointer, which is nil then")
	}
	return decodeJSON[E](e.data, json.Unmarshal)
}

// plain returns the bytes of the data. In structured mode those of other formats than JSON are a JSON string.
func (e *openedCloudEvent) plain(contentType string) ([]byte, error) {
	if !e.quoted || isJSON(contentType) {
		return e.data, nil
	}
	if isNull(e.data) {
		return nil, nil
	}
	text, err := jsonString(e.data)
	if err != nil && !errors.Is(err, errEmpty) {
		return nil, cloudEventError("its data is not a string, as data of another content type than one of JSON must be")
	}
	return []byte(text), nil
}

// isJSON reports whether a content type is one of JSON. Data without a content type is JSON, as the specification says.
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == "" || strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
}
