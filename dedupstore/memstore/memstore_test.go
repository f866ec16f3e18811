package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) storetest.Harness[*memstore.Tx] {
		var mu sync.Mutex
		effects := map[string]int{}
		return storetest.Harness[*memstore.Tx]{
			Store: memstore.New(),
			Write: func(_ context.Context, tx *memstore.Tx, effect string) error {
				tx.OnCommit(func() {
					mu.Lock()
					defer mu.Unlock()
					effects[effect]++
				})
				return nil
			},
			Effects: func(_ context.Context, effect string) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return effects[effect], nil
			},
		}
	})
}

var key = dedupstore.Key{Consumer: "c", Event: "e"}

func TestRecorded(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	_, err := store.Once(t.Context(), key, func(context.Context, *memstore.Tx) error { return errors.New("no") })
	if err == nil || store.Recorded(key) {
		t.Errorf("Once: %v, and the key is recorded: %v", err, store.Recorded(key))
	}
	_, err = store.Once(t.Context(), key, func(context.Context, *memstore.Tx) error { return nil })
	if err != nil || !store.Recorded(key) {
		t.Errorf("Once: %v, and the key is recorded: %v", err, store.Recorded(key))
	}
}

func TestOnCommitKeepsOrder(t *testing.T) {
	t.Parallel()
	var got []int
	_, err := memstore.New().Once(t.Context(), key, func(_ context.Context, tx *memstore.Tx) error {
		for i := range 3 {
			tx.OnCommit(func() { got = append(got, i) })
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("called in the order %v (error: %v)", got, err)
	}
}

// A transaction that is kept must not look as if it worked.
func TestOnCommitAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"committed": nil, "rolled back": errors.New("no")} {
		var kept *memstore.Tx
		_, _ = memstore.New().Once(t.Context(), key, func(_ context.Context, tx *memstore.Tx) error {
			kept = tx
			return result
		})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			kept.OnCommit(func() {})
		}()
	}
}

// A call does not wait for ever for one that hangs.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, hang := memstore.New(), make(chan struct{})
		go func() {
			_, _ = store.Once(t.Context(), key, func(context.Context, *memstore.Tx) error {
				<-hang
				return nil
			})
		}()
		synctest.Wait()
		begin := time.Now()
		ran, err := store.Once(t.Context(), key, func(context.Context, *memstore.Tx) error { return nil })
		if ran || err == nil || !strings.Contains(err.Error(), "try again later") || time.Since(begin) != 5*time.Second {
			t.Errorf("Once() = %v, %v after %v, want an error after 5 s", ran, err, time.Since(begin))
		}
		close(hang)
	})
}

func ExampleStore_Once() {
	store := memstore.New()
	var charged []string
	for _, event := range []string{"1", "2", "1"} { // one is delivered twice
		key := dedupstore.Key{Consumer: "billing", Event: event}
		ran, err := store.Once(context.Background(), key, func(_ context.Context, tx *memstore.Tx) error {
			tx.OnCommit(func() { charged = append(charged, "order "+event) })
			return nil
		})
		fmt.Println(event, ran, err)
	}
	fmt.Println(charged)
	// Output:
	// 1 true <nil>
	// 2 true <nil>
	// 1 false <nil>
	// [order 1 order 2]
}
