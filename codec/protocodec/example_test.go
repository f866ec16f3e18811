package protocodec_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/einmal-go/einmal/codec/protocodec"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/outbox"
)

func Example() {
	fake := srfake.New() // yours: the address of your registry
	defer fake.Close()
	client, err := sr.NewClient(sr.URLs(fake.URL()))
	if err != nil {
		panic(err)
	}
	registry := schemaregistry.New(client, nil)
	ctx := context.Background()

	// the schema is registered where services are built
	schema := sr.Schema{Type: sr.TypeProtobuf,
		Schema: `syntax = "proto3"; package google.protobuf; message StringValue { string value = 1; }`}
	if _, err := registry.Register(ctx, "orders-value", schema); err != nil {
		panic(err)
	}

	// who writes the event, to the outbox perhaps
	enc, err := protocodec.NewEncoder[*wrapperspb.StringValue](registry, "orders-value")
	if err != nil {
		panic(err)
	}
	value, err := enc.Encode(ctx, wrapperspb.String("o1"))
	if err != nil {
		panic(err)
	}
	event := outbox.Event{Topic: "orders", Value: value}

	// who reads it
	decode, err := protocodec.NewDecoder[*wrapperspb.StringValue](registry)
	if err != nil {
		panic(err)
	}
	handler := consumer.Decode(decode, func(_ context.Context, e *wrapperspb.StringValue) error {
		fmt.Println(e.GetValue())
		return nil
	})
	if err := handler.Handle(ctx, &consumer.Message{Value: event.Value}); err != nil {
		panic(err)
	}
	// Output: o1
}
