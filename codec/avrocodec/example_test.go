package avrocodec_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/einmal-go/einmal/codec/avrocodec"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/outbox"
)

const orderConfirmed = `{"type": "record", "name": "OrderConfirmed", "fields": [
	{"name": "id", "type": "string"},
	{"name": "cents", "type": "long"}]}`

type OrderConfirmed struct {
	ID    string `avro:"id"`
	Cents int64  `avro:"cents"`
}

func Example() {
	fake := srfake.New() // yours: the address of your registry
	defer fake.Close()
	client, err := sr.NewClient(sr.URLs(fake.URL()))
	if err != nil {
		panic(err)
	}
	registry := schemaregistry.New(client, nil)
	ctx := context.Background()

	// who writes the event, to the outbox perhaps
	enc, err := avrocodec.NewEncoder[OrderConfirmed](registry, "orders-value", orderConfirmed,
		&avrocodec.EncoderConfig{Register: true})
	if err != nil {
		panic(err)
	}
	value, err := enc.Encode(ctx, OrderConfirmed{"o1", 1999})
	if err != nil {
		panic(err)
	}
	event := outbox.Event{Topic: "orders", Value: value}

	// who reads it
	decode, err := avrocodec.NewDecoder[OrderConfirmed](registry, orderConfirmed, nil)
	if err != nil {
		panic(err)
	}
	handler := consumer.Decode(decode, func(_ context.Context, e OrderConfirmed) error {
		fmt.Printf("%s: %d cents\n", e.ID, e.Cents)
		return nil
	})
	if err := handler.Handle(ctx, &consumer.Message{Value: event.Value}); err != nil {
		panic(err)
	}
	// Output: o1: 1999 cents
}
