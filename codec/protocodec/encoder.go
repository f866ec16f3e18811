package protocodec

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/einmal-go/einmal/codec/internal/wire"
	"github.com/einmal-go/einmal/codec/schemaregistry"
)

// Encoder makes values in Confluent's wire format, for outbox.Event.Value. It is safe for concurrent use.
type Encoder[M proto.Message] struct {
	registry *schemaregistry.Registry
	subject  string
	found    atomic.Pointer[place]
}

// place is where a message stands in the registry.
type place struct {
	id    int
	index []int
}

// NewEncoder returns an Encoder for a subject, which Confluent names by the topic: "orders-value". It asks the registry
// for nothing: see Check.
func NewEncoder[M proto.Message](registry *schemaregistry.Registry, subject string) (*Encoder[M], error) {
	if registry == nil || subject == "" {
		return nil, errors.New("protocodec: NewEncoder needs a registry and a subject, as \"orders-value\"")
	}
	return &Encoder[M]{registry: registry, subject: subject}, nil
}

// Check asks the registry for the newest version of the subject, in which a message has to have the full name of M, and
// keeps its id. Call it at the start of a service, so that a schema that is not registered is found before the first
// event. The error wraps schemaregistry.ErrNotRegistered if the subject does not exist, or its newest version does not
// have the message.
//
// The schema is not compared with M's fields: registering what a service was built with, and refusing what older
// readers cannot take, is done before it is deployed.
func (e *Encoder[M]) Check(ctx context.Context) error {
	_, err := e.place(ctx)
	return err
}

// Encode returns the event in the wire format. Where Check was not called, the first Encode asks the registry, and so
// must not be called while a transaction is open that others wait for. Its error never contains a part of the event.
func (e *Encoder[M]) Encode(ctx context.Context, event M) ([]byte, error) {
	p, err := e.place(ctx)
	if err != nil {
		return nil, err
	}
	if !event.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("protocodec: the event is a nil %T", event)
	}
	value, err := proto.Marshal(event)
	if err != nil { // a required field, or text that is not UTF-8: package proto names the field alone
		return nil, fmt.Errorf("protocodec: a %T cannot be written: %w", event, err)
	}
	return wire.Join(p.id, p.index, value), nil
}

func (e *Encoder[M]) place(ctx context.Context) (*place, error) {
	if p := e.found.Load(); p != nil {
		return p, nil
	}
	v, err := e.registry.ByVersion(ctx, e.subject, schemaregistry.Latest)
	if err != nil {
		return nil, fmt.Errorf("protocodec: %w", err)
	}
	references, err := e.registry.References(v.Schema)
	if err != nil {
		return nil, fmt.Errorf("protocodec: %w", err)
	}
	file, err := compile(v.Schema, references)
	if err != nil {
		return nil, fmt.Errorf("protocodec: version %d of subject %q cannot be read: %w", v.Number, e.subject, err)
	}
	p := &place{v.ID, find(file.Messages(), nameOf[M]())}
	if p.index == nil {
		return nil, fmt.Errorf("protocodec: version %d of subject %q has no message %s: %w", v.Number, e.subject, nameOf[M](),
			schemaregistry.ErrNotRegistered)
	}
	e.found.Store(p)
	return p, nil
}
