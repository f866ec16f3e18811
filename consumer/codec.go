package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/einmal-go/einmal/internal/errtype"
)

// JSON returns a Handler that decodes the message's value with encoding/json and calls fn with it. MessageFrom(ctx) has
// the rest of the message.
//
// A value that cannot be decoded is a permanent error that wraps a *DecodeError; fn is not called. So is an event that
// is not there: a tombstone (a record whose value is nil; the error wraps ErrTombstone too) and the JSON literal null,
// from which encoding/json would make a zero event. An E that is a pointer asks for both: fn gets nil.
//
// Further choices of E: a map, a slice and any get what encoding/json makes of the value, never null or a tombstone.
// json.RawMessage gets a copy of the text, null included, after a check that it is JSON. []byte is a JSON string in
// base64, as everywhere in encoding/json: for the bytes themselves write a Handler.
//
// Fields that E does not have are ignored, so that a producer may add some while consumers run: see StrictJSON for the
// opposite. What must not be missing says so itself, in E or in any struct within it, and a value without it, or with
// null in its place, is refused:
//
//	type OrderConfirmed struct {
//		ID    string `json:"id" einmal:"required"`
//		Cents int64  `json:"cents" einmal:"required"`
//	}
//
// An envelope of which E is the inside is refused too, since encoding/json would make an event of it in which all that
// matters is zero: an object that has fields, but none that E has, as that of Kafka Connect with schemas.enable=true
// (see ConnectJSON), and a CloudEvent in structured mode (see ParseCloudEvent), unless E has one of the fields
// specversion, data, data_base64.
//
// JSON(nil) is nil, which New refuses as a topic without a handler.
func JSON[E any](fn func(ctx context.Context, event E) error) Handler {
	if fn == nil {
		return nil
	}
	return Decode(plainJSON[E], fn)
}

// JSONTx is JSON for a function that works inside a transaction. JSONTx(nil) is nil, which middleware.Dedup refuses.
func JSONTx[Tx, E any](fn func(ctx context.Context, tx Tx, event E) error) TxHandler[Tx] {
	return DecodeTx(plainJSON[E], fn)
}

// Decode is DecodeTx for a function that has no transaction. Decode is nil if one of its arguments is, which New
// refuses.
func Decode[E any](decode func(*Message) (E, error), fn func(ctx context.Context, event E) error) Handler {
	if decode == nil || fn == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, msg *Message) error {
		event, err := decode(msg)
		if err != nil {
			return asPermanent(&undecodable{err})
		}
		return fn(ctx, event)
	})
}

// DecodeTx returns a TxHandler that decodes the message and calls fn with the event, for what JSONTx does not read:
//
//	consumer.DecodeTx(consumer.StrictJSON, charge)      // JSON without unknown fields
//	consumer.DecodeTx(consumer.ParseCloudEvent, charge) // charge gets a consumer.CloudEvent[OrderConfirmed]
//	consumer.DecodeTx(consumer.ConnectJSON, charge)     // the payload of Kafka Connect's envelope
//	consumer.DecodeTx(yours, charge)                    // func(*consumer.Message) (OrderConfirmed, error)
//
// An error of decode is permanent, because the same bytes give the same error, unless it is a RetryAfter: decode
// returns one when the cause may go away, as when a schema registry cannot be reached. The error's text must not
// contain the payload. decode must be safe for concurrent use, must not write to the message, and runs while the
// transaction is open: it should not wait long. A tombstone reaches decode like any other message.
//
// DecodeTx is nil if one of its arguments is, which middleware.Dedup refuses.
func DecodeTx[Tx, E any](decode func(*Message) (E, error),
	fn func(ctx context.Context, tx Tx, event E) error) TxHandler[Tx] {
	if decode == nil || fn == nil {
		return nil
	}
	return func(ctx context.Context, tx Tx, msg *Message) error {
		event, err := decode(msg)
		if err != nil {
			return asPermanent(&undecodable{err})
		}
		return fn(ctx, tx, event)
	}
}

// ErrUndecodable is found, by errors.Is, in every error that says that a message could not be decoded: in a
// *DecodeError, and in the errors of DecodeTx's decode.
var ErrUndecodable = errors.New("the message cannot be decoded")

// undecodable marks an error of a decoder of the user's, and leaves its text alone.
type undecodable struct{ error }

func (e *undecodable) Unwrap() error        { return e.error }
func (e *undecodable) Is(target error) bool { return target == ErrUndecodable }

// asPermanent makes err permanent unless it already says what should happen.
func asPermanent(err error) error {
	if control(err) != nil {
		return err
	}
	return Permanent(err)
}

// ErrTombstone is wrapped by the error for a record without a value that is to be decoded into something that cannot be
// nil.
var ErrTombstone = errtype.New("tombstone",
	"the record is a tombstone, it has no value: let the event be a pointer, which is nil for a tombstone, "+
		"or handle the message itself")

// DecodeError says that a value could not be decoded into an event. Its text names the type, the field and the place,
// and never shows a byte of the value.
type DecodeError struct {
	Type   string // Go type of the event
	Field  string // path of the field in Go or JSON names, * for what only the value knows (a map's key); empty if unknown
	Offset int64  // bytes of the value, or of the part that a custom UnmarshalJSON saw, that were read; 0 if unknown
	Err    error  // what the decoder returned; its text may contain parts of the value. Nil for the literal null

	reason string // made of constants, Go types and kinds of JSON values only
}

// Error never contains a part of the value.
func (e *DecodeError) Error() string {
	var b strings.Builder
	b.WriteString("decode " + e.Type)
	if e.Field != "" {
		b.WriteString(", field " + e.Field)
	}
	b.WriteString(": " + e.reason)
	if e.Offset > 0 {
		fmt.Fprintf(&b, " (after %d bytes)", e.Offset)
	}
	return b.String()
}

// Is finds ErrUndecodable.
func (e *DecodeError) Is(target error) bool { return target == ErrUndecodable }

// Unwrap returns Err. Its text may contain parts of the value: do not log it where those must not appear.
func (e *DecodeError) Unwrap() error { return e.Err }

// newDecodeError describes err, an error of encoding/json or of a method that it called, without repeating its text:
// that holds literals, characters and map keys of the value.
func newDecodeError(typ reflect.Type, size int, err error) *DecodeError {
	e := &DecodeError{Type: typ.String(), Err: err}
	var (
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
	)
	switch {
	case errors.Is(err, errUnknownField):
		e.reason = "the value has a field that the event does not have"
	case size == 0:
		e.reason = "the value is empty, which is not JSON"
	case errors.As(err, &syntax):
		e.reason = "not valid JSON"
		e.Offset = syntax.Offset
	case errors.As(err, &kind):
		e.reason = mismatch(kind)
		e.Offset = kind.Offset
		e.Field = safePath(typ, kind.Field)
	default:
		e.reason = fmt.Sprintf("refused by an UnmarshalJSON or UnmarshalText method or by encoding/json (%T)", err)
	}
	return e
}

// mismatch says which kind of JSON value does not fit which Go type. UnmarshalTypeError.Value is the kind, followed by
// the literal for numbers.
func mismatch(e *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(e.Value, " ")
	switch kind {
	case "array", "bool", "null", "number", "object", "string":
		kind = "JSON " + kind
	default:
		kind = "JSON value"
	}
	if e.Type == nil {
		return "a " + kind + " does not fit"
	}
	return fmt.Sprintf("a %s does not fit into a Go %v", kind, e.Type)
}

// maxPath limits the path of a field: a recursive type can be nested thousands of levels deep.
const maxPath = 200

// safePath returns path with every name that is not a field of typ or of a type within it replaced by *. Keys of maps
// can stand in a path, depending on the version of encoding/json, and belong to the value.
func safePath(typ reflect.Type, path string) string {
	if path == "" {
		return ""
	}
	names := map[string]bool{}
	addFieldNames(typ, names, map[reflect.Type]bool{})
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if !names[part] {
			parts[i] = "*"
		}
	}
	return cutPath(strings.Join(parts, "."))
}

func cutPath(path string) string {
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "..."
	}
	return path
}

// addFieldNames adds the Go and JSON names of all fields that can be reached from typ.
func addFieldNames(typ reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	if seen[typ] {
		return
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		addFieldNames(typ.Elem(), names, seen)
	case reflect.Struct:
		for field := range typ.Fields() {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names[field.Name] = true
			names[tag] = true
			addFieldNames(field.Type, names, seen)
		}
	}
}
