package idempotencytest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
)

// Outcomes counts what became of requests.
type Outcomes struct{ Fresh, Replayed, InProgress int }

// AtOnce sends a number of requests with one key at the same time, to both stores of the harness, and reports whether
// one of them took effect, and the others were told so, or that it was in progress.
func AtOnce[Tx any](t testing.TB, h Harness[Tx], key string, requests int) Outcomes {
	t.Helper()
	var fresh, replayed, inProgress atomic.Int32
	start, all := make(chan struct{}), sync.WaitGroup{}
	for i := range requests {
		store := h.Store
		if i%2 == 1 {
			store = h.Other
		}
		all.Go(func() {
			<-start
			answer, again, err := store.Once(t.Context(), request(key, ""), func(ctx context.Context, tx Tx) (idempotency.Answer,
				error) {
				return created(key), h.Write(ctx, tx, key)
			})
			switch {
			case errors.Is(err, idempotency.ErrInProgress):
				inProgress.Add(1)
			case err != nil:
				t.Error(err)
			case string(answer.Body) != key:
				t.Errorf("answered %q, want %q", answer.Body, key)
			case again:
				replayed.Add(1)
			default:
				fresh.Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	if n, err := h.Effects(t.Context(), key); err != nil || n != 1 || fresh.Load() != 1 {
		t.Errorf("%s: %d effects, %v, %d requests ran, want one", key, n, err, fresh.Load())
	}
	return Outcomes{int(fresh.Load()), int(replayed.Load()), int(inProgress.Load())}
}
