package avrocodec

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/einmal-go/einmal/codec/internal/wire"
	"github.com/einmal-go/einmal/codec/schemaregistry"
)

// Encoder makes values in Confluent's wire format, for outbox.Event.Value. It is safe for concurrent use.
type Encoder[E any] struct {
	registry *schemaregistry.Registry
	subject  string
	register bool
	text     sr.Schema
	schema   avro.Schema
	api      avro.API
	id       atomic.Pointer[int]
}

// EncoderConfig is what is optional about an Encoder. A nil EncoderConfig, or a zero field, is the default.
type EncoderConfig struct {
	// Register adds the schema to the subject if it is not there. By default that is an error, since a schema is a
	// contract that is checked before a service is deployed, not by it.
	Register bool
}

// NewEncoder returns an Encoder for a subject, which Confluent names by the topic: "orders-value". Schema is the one by
// which this service writes the event; E has all its fields. It asks the registry for nothing: see Check.
func NewEncoder[E any](registry *schemaregistry.Registry, subject, schema string, cfg *EncoderConfig) (*Encoder[E],
	error) {
	if registry == nil || subject == "" {
		return nil, errors.New("avrocodec: NewEncoder needs a registry and a subject, as \"orders-value\"")
	}
	parsed, err := parse(schema, nil)
	if err != nil {
		return nil, fmt.Errorf("avrocodec: the schema: %w", err)
	}
	e := &Encoder[E]{registry: registry, subject: subject, text: sr.Schema{Schema: schema, Type: sr.TypeAvro},
		schema: parsed, api: (&Config{}).api()}
	if cfg != nil {
		e.register = cfg.Register
	}
	return e, nil
}

// Check asks the registry for the schema's id, which is kept. Call it at the start of a service, so that a schema that
// is not registered is found before the first event. The error wraps schemaregistry.ErrNotRegistered if the subject
// does not have the schema.
func (e *Encoder[E]) Check(ctx context.Context) error {
	_, err := e.schemaID(ctx)
	return err
}

// Encode returns the event in the wire format. Where Check was not called, the first Encode asks the registry, and so
// must not be called while a transaction is open that others wait for. Its error never contains a part of the event.
func (e *Encoder[E]) Encode(ctx context.Context, event E) ([]byte, error) {
	id, err := e.schemaID(ctx)
	if err != nil {
		return nil, err
	}
	value, err := e.api.Marshal(e.schema, event)
	if err != nil {
		return nil, &encodeError{fmt.Sprintf("%T", event), e.subject, err}
	}
	return wire.Join(id, nil, value), nil
}

func (e *Encoder[E]) schemaID(ctx context.Context) (int, error) {
	if id := e.id.Load(); id != nil {
		return *id, nil
	}
	find := e.registry.Lookup
	if e.register {
		find = e.registry.Register
	}
	v, err := find(ctx, e.subject, e.text)
	switch {
	case errors.Is(err, schemaregistry.ErrNotRegistered):
		return 0, fmt.Errorf("avrocodec: register the schema before the service starts, or set EncoderConfig.Register: %w",
			err)
	case err != nil:
		return 0, fmt.Errorf("avrocodec: %w", err)
	}
	e.id.Store(&v.ID)
	return v.ID, nil
}

// encodeError says that an event could not be written. What package avro says of it may have a part of the event: a
// symbol of an enum.
type encodeError struct {
	typ, subject string
	err          error
}

func (e *encodeError) Error() string {
	text := fmt.Sprintf("avrocodec: a %s is not an event of the schema of %q", e.typ, e.subject)
	if field, _ := explain(e.err); field != "" {
		text += ", field " + field
	}
	return text
}

// Unwrap returns the error of package avro.
func (e *encodeError) Unwrap() error { return e.err }
