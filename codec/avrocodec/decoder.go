// Package avrocodec reads and writes events in Avro, with the schemas of a registry (Confluent's wire format) or
// without.
//
//	const schema = `{"type": "record", "name": "OrderConfirmed", "fields": [
//		{"name": "id", "type": "string"},
//		{"name": "cents", "type": "long"}]}`
//
//	type OrderConfirmed struct {
//		ID    string `avro:"id"`
//		Cents int64  `avro:"cents"`
//	}
//
//	client, err := sr.NewClient(sr.URLs("https://registry:8081"))
//	registry := schemaregistry.New(client, nil)
//	decode, err := avrocodec.NewDecoder[OrderConfirmed](registry, schema, nil)
//
//	consumer.Topic{
//		EventID: consumer.HeaderID("event-id"),
//		Handler: middleware.Dedup(store, consumer.DecodeTx(decode, charge), nil),
//	}
//
// Encoder makes the values of an outbox's events. Avro itself is that of github.com/hamba/avro, whose documentation
// says which Go types stand for which schemas.
package avrocodec

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/einmal-go/einmal/codec/internal/wire"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
)

// Config is what is optional about a decoder. A nil Config, or a zero field, is the default.
type Config struct {
	// MaxField is the largest string or bytes, and the largest memory of an array, in bytes: a length that a value claims
	// is not believed beyond it. Defaults to 16 MiB, above what Kafka takes for a message by default (1 MiB).
	MaxField int
}

const defaultMaxField = 16 << 20

func (c *Config) api() avro.API {
	limit := defaultMaxField
	if c != nil && c.MaxField > 0 {
		limit = c.MaxField
	}
	return avro.Config{MaxByteSliceSize: limit, MaxSliceAllocSize: limit, UnionResolutionError: true}.Freeze()
}

// NewDecoder returns a function for consumer.Decode and consumer.DecodeTx that reads Confluent's wire format. Schema is
// the one by which this service knows the event, the reader's: what a newer writer added is skipped, what an older one
// did not know yet has the default of schema. A field of schema that E lacks is skipped.
//
// What cannot be decoded is a permanent error that wraps consumer.ErrUndecodable and names the schema's id and the
// field: a value that is not in the wire format, or not of its schema, a schema that cannot be read as this one, a
// tombstone (the error wraps consumer.ErrTombstone too), unless E is a pointer, which is nil then. Package
// schemaregistry says what follows when the registry is to blame.
//
// NewDecoder itself fails if schema is not a schema, or E cannot hold it.
func NewDecoder[E any](registry *schemaregistry.Registry, schema string,
	cfg *Config) (func(*consumer.Message) (E, error), error) {
	if registry == nil {
		return nil, errors.New("avrocodec: NewDecoder needs a registry: make one with schemaregistry.New, or use Plain")
	}
	d, err := newReader[E](schema, cfg)
	if err != nil {
		return nil, err
	}
	w := &writers{registry: registry, reader: d.schema}
	return func(msg *consumer.Message) (event E, err error) {
		if msg.Value == nil {
			return event, d.tombstone()
		}
		id, value, err := wire.Split(msg.Value)
		if err != nil {
			return event, d.error(0, err.Error(), nil)
		}
		schema, err := w.schema(id)
		var no *unreadable
		switch {
		case errors.As(err, &no):
			return event, d.error(id, no.Error(), nil)
		case err != nil:
			return event, err
		}
		return d.decode(id, schema, value)
	}, nil
}

// Plain returns a function for consumer.Decode and consumer.DecodeTx that reads values which are Avro's binary encoding
// and nothing else. Their writers and this service must have the same schema: nothing in a value says which one it was
// written with. Its errors are those of NewDecoder.
func Plain[E any](schema string, cfg *Config) (func(*consumer.Message) (E, error), error) {
	d, err := newReader[E](schema, cfg)
	if err != nil {
		return nil, err
	}
	return func(msg *consumer.Message) (event E, err error) {
		if msg.Value == nil {
			return event, d.tombstone()
		}
		return d.decode(0, d.schema, msg.Value)
	}, nil
}

// reader decodes values into E.
type reader[E any] struct {
	api    avro.API
	schema avro.Schema
	typ    string
}

func newReader[E any](schema string, cfg *Config) (*reader[E], error) {
	parsed, err := parse(schema, nil)
	if err != nil {
		return nil, fmt.Errorf("avrocodec: the schema: %w", err)
	}
	d := &reader[E]{cfg.api(), parsed, reflect.TypeFor[E]().String()}
	if err := fits[E](d.api, parsed); err != nil {
		return nil, fmt.Errorf("avrocodec: %s cannot hold an event of the schema: %w", d.typ, err)
	}
	return d, nil
}

// parse reads a schema, whose named types other ones do not see.
func parse(schema string, references []string) (parsed avro.Schema, err error) {
	cache := &avro.SchemaCache{}
	for _, r := range references {
		if _, err := avro.ParseWithCache(r, "", cache); err != nil {
			return nil, err
		}
	}
	return avro.ParseWithCache(schema, "", cache)
}

// tombstone is the error for a record without a value, or nil if a nil E stands for it.
func (d *reader[E]) tombstone() error {
	if reflect.TypeFor[E]().Kind() == reflect.Pointer {
		return nil
	}
	return d.error(0, consumer.ErrTombstone.Error(), consumer.ErrTombstone)
}

// decode reads a value to its end.
func (d *reader[E]) decode(id int, schema avro.Schema, value []byte) (event E, err error) {
	r := avro.NewReader(nil, 0, avro.WithReaderConfig(d.api)).Reset(value)
	target := any(&event)
	if typ := reflect.TypeFor[E](); typ.Kind() == reflect.Pointer { // of a record, which hamba allocates only within one
		event = reflect.New(typ.Elem()).Interface().(E) //nolint:forcetypeassert // that is its type
		target = any(event)
	}
	r.ReadVal(schema, target)
	var zero E
	if r.Error != nil {
		field, reason := explain(r.Error)
		return zero, &wire.Error{Format: "Avro", Type: d.typ, ID: id, Field: field, Reason: reason, Err: r.Error}
	}
	if r.Peek(); r.Error == nil {
		return zero, d.error(id, "bytes follow the event: the value was written with another schema", nil)
	}
	return event, nil
}

func (d *reader[E]) error(id int, reason string, err error) error {
	return &wire.Error{Format: "Avro", Type: d.typ, ID: id, Reason: reason, Err: err}
}

// writers are the schemas of those who wrote the values, each resolved to be read as the reader's.
type writers struct {
	registry *schemaregistry.Registry
	reader   avro.Schema
	compat   avro.SchemaCompatibility
	known    sync.Map // of the id: avro.Schema, or *unreadable
}

// unreadable says why a schema cannot be read as the reader's.
type unreadable struct{ text string }

func (e *unreadable) Error() string { return e.text }

// schema returns the schema of an id. The error is an *unreadable, or the registry's.
func (w *writers) schema(id int) (avro.Schema, error) {
	if known, ok := w.known.Load(id); ok {
		if no, ok := known.(*unreadable); ok {
			return nil, no
		}
		return known.(avro.Schema), nil //nolint:forcetypeassert // nothing else is in it
	}
	text, err := w.registry.ByID(id)
	if err != nil {
		return nil, err
	}
	references, err := w.registry.References(text)
	if err != nil {
		return nil, err
	}
	schema, no := w.resolve(text, references)
	if no != nil {
		w.known.Store(id, no)
		return nil, no
	}
	w.known.Store(id, schema)
	return schema, nil
}

func (w *writers) resolve(text sr.Schema, references []schemaregistry.Reference) (avro.Schema, *unreadable) {
	if text.Type != sr.TypeAvro {
		return nil, &unreadable{fmt.Sprintf("it is a schema of %s, not of Avro", text.Type)}
	}
	texts := make([]string, len(references))
	for i, r := range references {
		texts[i] = r.Schema.Schema
	}
	written, err := parse(text.Schema, texts)
	if err != nil {
		return nil, &unreadable{"the registry's schema cannot be read: " + err.Error()}
	}
	resolved, err := w.compat.Resolve(w.reader, written)
	if err != nil {
		return nil, &unreadable{"it cannot be read as the schema that this service knows: " + err.Error()}
	}
	return resolved, nil
}

// explain finds the field in an error of package avro, which puts the names of fields before the cause, and says what
// the cause is without what a method of the event said, which may be a part of the value.
func explain(err error) (field, reason string) {
	var path []string
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		if name, ok := strings.CutSuffix(err.Error(), ": "+inner.Error()); ok && !strings.ContainsAny(name, " []*") {
			path = append(path, name)
		}
		err = inner
	}
	text := strings.TrimPrefix(err.Error(), "avro: ")
	for _, by := range []string{"decode enum text unmarshaler", "textMarshalerCodec", "mapDecoderUnmarshaler", "Union"} {
		if strings.HasPrefix(text, by+":") {
			text = "refused by an UnmarshalText method or a converter of the event"
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "the value ends too early"
	}
	return strings.Join(path, "."), text
}
