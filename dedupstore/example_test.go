package dedupstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
)

// What a failed call asks for is in its class: the event is to blame for none but Permanent, and for what the function
// returned.
func ExampleClassOf() {
	store := memstore.New()
	key := dedupstore.Key{Consumer: "billing", Event: "confirmed-A-1"}
	down := dedupstore.WithClass(dedupstore.Unavailable, errors.New("the rates cannot be asked for"))
	_, err := store.Once(context.Background(), key, func(context.Context, *memstore.Tx) error { return down })
	fmt.Println(dedupstore.ClassOf(err))

	_, err = store.Once(context.Background(), dedupstore.Key{}, func(context.Context, *memstore.Tx) error { return nil })
	fmt.Println(dedupstore.ClassOf(err))
	// Output:
	// unavailable
	// permanent
}
