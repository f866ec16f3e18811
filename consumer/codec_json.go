package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
)

// plainJSON is the decoder of JSON and JSONTx.
func plainJSON[E any](msg *Message) (event E, err error) {
	typ := reflect.TypeFor[E]()
	if structured(msg) != "" && !knows(typ, cloudEventInside...) {
		return event, &DecodeError{Type: typ.String(), reason: isCloudEvent}
	}
	return decodeJSON[E](msg.Value, json.Unmarshal)
}

// StrictJSON decodes JSON as JSON and JSONTx do, and refuses every field that E does not have. It is passed to Decode
// or DecodeTx.
//
// A producer that adds a field stops its consumers then, until they know it: choose it where both are released
// together, or where a field that is not understood must not be ignored. The name of the field is in DecodeError.Err,
// not in its text.
func StrictJSON[E any](msg *Message) (E, error) { return decodeJSON[E](msg.Value, unmarshalStrict) }

// ConnectJSON decodes the payload of a value that Kafka Connect's JsonConverter has written with schemas.enable=true:
//
//	{"schema": {...}, "payload": {...}}
//
// The schema is not looked at, the payload is decoded as JSON does. A payload that is null is a tombstone. Any other
// value is refused: where the converter has schemas.enable=false, use JSON. ConnectJSON is passed to Decode or
// DecodeTx.
func ConnectJSON[E any](msg *Message) (event E, err error) {
	if msg.Value == nil {
		return decodeJSON[E](nil, json.Unmarshal)
	}
	names, fields := map[string]bool{}, map[string]json.RawMessage{}
	err = eachField(msg.Value, func(name string, value json.RawMessage) error {
		names[name], fields[name] = true, value
		return nil
	})
	if err != nil || !isConnect(names) {
		return event, &DecodeError{
			Type: reflect.TypeFor[E]().String(), Err: err,
			reason: "the value is not an object with the fields schema and payload alone, as Kafka Connect writes with schemas.enable=true: use JSON where that is false",
		}
	}
	if isNull(fields["payload"]) {
		return decodeJSON[E](nil, json.Unmarshal)
	}
	return decodeJSON[E](fields["payload"], json.Unmarshal)
}

// decodeJSON decodes a value by a function like json.Unmarshal, and refuses what that takes for an event although none
// is there.
func decodeJSON[E any](value []byte, unmarshal func([]byte, any) error) (event E, err error) {
	typ := reflect.TypeFor[E]()
	pointer := typ.Kind() == reflect.Pointer
	if err := tagMistake(typ); err != nil {
		return event, err
	}
	switch {
	case value == nil && pointer:
		return event, nil
	case value == nil:
		return event, &DecodeError{Type: typ.String(), Err: ErrTombstone, reason: ErrTombstone.Error()}
	case !pointer && typ != reflect.TypeFor[json.RawMessage]() && isNull(value):
		return event, &DecodeError{Type: typ.String(),
			reason: "the value is the JSON literal null, and only an event that is a pointer may be null"}
	}
	var zero E
	if err := unmarshal(value, &event); err != nil {
		if isWire(value) {
			return zero, &DecodeError{Type: typ.String(), Err: err, reason: isWireFormat}
		}
		return zero, newDecodeError(typ, len(value), err)
	}
	if reason := envelope(typ, value, reflect.ValueOf(&event).Elem()); reason != "" {
		return zero, &DecodeError{Type: typ.String(), reason: reason}
	}
	if field := missing(typ, value); field != "" {
		return zero, &DecodeError{Type: typ.String(), Field: field,
			reason: `it is missing or null, and its tag is einmal:"required"`}
	}
	return event, nil
}

// isWire reports whether a value begins as Confluent's wire format does, with a zero byte and a schema's id, which no
// JSON does.
func isWire(value []byte) bool { return len(value) > 4 && value[0] == 0 }

func isNull(value []byte) bool { return string(bytes.Trim(value, " \t\r\n")) == "null" }

// errUnknownField marks the error of encoding/json for a field that the event does not have.
var errUnknownField = errors.New("unknown field")

type unknownField struct{ error }

func (e unknownField) Unwrap() error        { return e.error }
func (e unknownField) Is(target error) bool { return target == errUnknownField }

// unmarshalStrict is json.Unmarshal that refuses unknown fields.
func unmarshalStrict(value []byte, event any) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	strict := dec.Decode(event)
	if strict == nil {
		_, end := dec.Token()
		if errors.Is(end, io.EOF) {
			return nil
		}
	}
	again := reflect.New(reflect.TypeOf(event).Elem()).Interface()
	if err := json.Unmarshal(value, again); err != nil { // the same, or what follows the value
		return err
	}
	return unknownField{strict}
}

const (
	isCloudEvent = "the value is a CloudEvent in structured mode, and the event is its data: decode it by consumer.ParseCloudEvent"
	isEnvelope   = "the value has none of the fields of the event, as if it were an envelope around it: decode what is inside"
	isWireFormat = "the value is no JSON but begins as Confluent's wire format does, which producers with a schema registry write: decode it by package codec/avrocodec or codec/protocodec"
	isConnectOne = "the value is an envelope of Kafka Connect (schemas.enable=true): decode its payload by consumer.ConnectJSON, or turn schemas.enable off"
)

// cloudEventInside are fields of a structured CloudEvent that an event has which is meant to be the whole of it.
var cloudEventInside = []string{"specversion", "data", "data_base64"}

// envelope says what value is, if it is something around the event, which typ describes. event is what was decoded.
func envelope(typ reflect.Type, value []byte, event reflect.Value) string {
	cloudEvent := bytes.Contains(value, []byte(`"specversion"`)) && !knows(typ, cloudEventInside...)
	for event.Kind() == reflect.Pointer && !event.IsNil() {
		event = event.Elem()
	}
	if event.Kind() != reflect.Struct || !cloudEvent && !event.IsZero() {
		return ""
	}
	names := map[string]bool{}
	_ = eachField(value, func(name string, _ json.RawMessage) error { // it is JSON: an error says that it is no object
		names[name] = true
		return nil
	})
	switch {
	case cloudEvent && isStructured(names):
		return isCloudEvent
	case len(names) == 0 || !event.IsZero() || knowsOne(typ, names):
		return ""
	case isConnect(names):
		return isConnectOne
	default:
		return isEnvelope
	}
}

func isStructured(names map[string]bool) bool {
	return names["specversion"] && names["id"] && names["source"] && names["type"]
}

func isConnect(names map[string]bool) bool {
	return len(names) == 2 && names["schema"] && names["payload"]
}

func knowsOne(typ reflect.Type, names map[string]bool) bool {
	for name := range names {
		if knows(typ, name) {
			return true
		}
	}
	return false
}

// knows reports whether a value with one of the fields leaves it in an event of the type. Maps, and what decodes
// itself, take all.
func knows(typ reflect.Type, names ...string) bool {
	for !opaque(typ) && (typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Array) {
		typ = typ.Elem()
	}
	if opaque(typ) || typ.Kind() != reflect.Struct {
		return true
	}
	fields := fieldsOf(typ)
	if len(fields) == 0 {
		return true // nothing of the value is wanted
	}
	for _, f := range fields {
		for _, name := range names {
			if strings.EqualFold(f.name, name) {
				return true
			}
		}
	}
	return false
}
