package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// JSONID returns a function for Topic.EventID that takes the id from a field of the value, which is a JSON object:
// JSONID("id"), or JSONID("meta", "id") for the field id of the object meta. Names are case-sensitive.
//
// The field is a string or an integer. Anything that leaves doubt is an error that wraps ErrNoEventID: a field that is
// missing, null, empty, twice there or of another type, a string that is not Unicode, a value that is not JSON, a
// tombstone. Errors do not show the value.
//
// The whole value is read for it, and once more by the handler.
func JSONID(path ...string) func(*Message) (string, error) {
	if len(path) == 0 || slices.Contains(path, "") {
		return mistaken("JSONID has no name, or an empty one: pass that of the field, with those of the objects around it")
	}
	name := fmt.Sprintf("%q", strings.Join(path, "."))
	return func(msg *Message) (string, error) {
		id, err := jsonID(msg.Value, path)
		if err != nil {
			return "", fmt.Errorf("%w: field %s of the value: %w: let the producer give every event an id of its own, or set Topic.EventID to where it stands", ErrNoEventID, name, err)
		}
		return id, nil
	}
}

func jsonID(value []byte, path []string) (string, error) {
	for _, name := range path[:len(path)-1] {
		fields, err := jsonFields(value, name)
		if err != nil {
			return "", err
		}
		value = fields[0]
	}
	fields, err := jsonFields(value, path[len(path)-1])
	if err != nil {
		return "", err
	}
	if integer(fields[0]) {
		return string(fields[0]), nil
	}
	return jsonString(fields[0])
}

// What can be wrong with a field, without a word of what is in it.
var (
	errTombstone = errors.New("the record is a tombstone")
	errNoObject  = errors.New("it does not stand in a JSON object")
	errNotJSON   = errors.New("what it stands in is not valid JSON")
	errMissing   = errors.New("it is missing")
	errTwice     = errors.New("it is there twice")
	errType      = errors.New("it is neither a string nor an integer")
	errEmpty     = errors.New("it is empty")
	errUnicode   = errors.New("it is not valid Unicode")
)

// jsonFields returns the values of fields of a JSON object, each of which must be there once.
func jsonFields(object []byte, names ...string) ([]json.RawMessage, error) {
	found := make([]json.RawMessage, len(names))
	err := eachField(object, func(name string, value json.RawMessage) error {
		i := slices.Index(names, name)
		switch {
		case i < 0:
		case found[i] != nil:
			return errTwice
		default:
			found[i] = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(found, func(v json.RawMessage) bool { return v == nil }) {
		return nil, errMissing
	}
	return found, nil
}

// eachField shows the fields of a JSON object, in their order.
func eachField(object []byte, show func(name string, value json.RawMessage) error) error {
	if object == nil {
		return errTombstone
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return errNoObject
	}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return errNotJSON
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return errNotJSON
		}
		if err := show(name, value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return errNotJSON
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errNotJSON
	}
	return nil
}

// jsonString decodes a string that is not empty. encoding/json makes the replacement character of whatever is not
// Unicode, so that different ids would become the same.
func jsonString(value json.RawMessage) (s string, err error) {
	switch {
	case value[0] != '"':
		return "", errType
	case json.Unmarshal(value, &s) != nil:
		return "", errNotJSON
	case s == "":
		return "", errEmpty
	case strings.ContainsRune(s, utf8.RuneError):
		return "", errUnicode
	}
	return s, nil
}

// integer reports whether a JSON value is a number without a fraction and an exponent, which there are several ways to
// write.
func integer(value json.RawMessage) bool {
	digits := bytes.TrimPrefix(value, []byte("-"))
	return len(digits) > 0 && !bytes.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
}
