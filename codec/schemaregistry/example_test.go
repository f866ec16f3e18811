package schemaregistry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/einmal-go/einmal/codec/schemaregistry"
)

func Example() {
	fake := srfake.New() // yours: the address of your registry, sr.BasicAuth, sr.DialTLSConfig
	defer fake.Close()
	client, err := sr.NewClient(sr.URLs(fake.URL()))
	if err != nil {
		panic(err)
	}
	registry := schemaregistry.New(client, nil)

	// a service that stops at its start when its schema is not there
	_, err = registry.Lookup(context.Background(), "orders-value", sr.Schema{Schema: `"string"`})
	if errors.Is(err, schemaregistry.ErrNotRegistered) {
		fmt.Println(err)
	}
	// Output: schema registry: look up the schema in subject "orders-value": it is not registered
}
