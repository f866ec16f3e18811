package storetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

// effects counts what transactions of a memstore have committed: a table, where a store is on a database.
type effects struct {
	mu    sync.Mutex
	names map[string]int
}

func (e *effects) write(_ context.Context, tx *memstore.Tx, effect string) error {
	tx.OnCommit(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.names[effect]++
	})
	return nil
}

func (e *effects) count(_ context.Context, effect string) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.names[effect], nil
}

// The test of a store looks like this one, of memstore. What more a Harness has makes more of the promises be tested.
func Example() {
	testStore := func(t *testing.T) { // TestStore of your package
		storetest.Run(t, func(testing.TB) storetest.Harness[*memstore.Tx] {
			e := &effects{names: map[string]int{}}
			return storetest.Harness[*memstore.Tx]{Store: memstore.New(), Write: e.write, Effects: e.count}
		})
	}
	_ = testStore
	// Output:
}
