package handlertest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// racy is a store that looks first and records afterwards: two owners at the same time both find nothing.
type racy struct {
	mu       sync.Mutex
	recorded map[dedupstore.Key]bool
	charges  []string
}

func (r *racy) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *[]string) error) (bool, error) {
	r.mu.Lock()
	known := r.recorded[key]
	r.mu.Unlock()
	if known {
		return false, nil
	}
	runtime.Gosched()
	var writes []string
	if err := fn(ctx, &writes); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded[key] = true
	r.charges = append(r.charges, writes...)
	return true, nil
}

func TestStoreThatDoesNotLock(t *testing.T) {
	t.Parallel()
	got := findings(t, func(testing.TB) Harness[*[]string] {
		r := &racy{recorded: map[dedupstore.Key]bool{}}
		var inside sync.WaitGroup // both owners are in the handler before one leaves it
		inside.Add(2)
		var failing *Store[*[]string]
		var come atomic.Int32
		late := func(msg *consumer.Message) (string, error) {
			if failing.meets() && come.Add(1) == 2 {
				time.Sleep(50 * time.Millisecond) // the other one waits for this one
			}
			return consumer.HeaderID(consumer.DefaultEventIDHeader)(msg)
		}
		return Harness[*[]string]{
			Store: r,
			Topic: consumer.Topic{EventID: late},
			Handler: func(store dedupstore.Store[*[]string]) consumer.Handler {
				failing = store.(*Store[*[]string])
				return middleware.Dedup(store, func(_ context.Context, tx *[]string, msg *consumer.Message) error {
					*tx = append(*tx, "charge "+string(msg.Value))
					if failing.meets() {
						if len(failing.Keys()) < 2 {
							t.Error("one owner was in the handler before the other had come")
						}
						inside.Done()
						inside.Wait()
					}
					return nil
				}, nil)
			},
			Messages: messages()[:1],
			Effects: func(context.Context) ([]string, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return slices.Clone(r.charges), nil
			},
		}
	})
	wantFindings(t, got, []string{`when two owners of the partition handle it at the same time`,
		`applied twice: "charge o1 500"`}, "two owners at once")
}

func (s *Store[Tx]) meets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meet != nil
}
