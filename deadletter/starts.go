package deadletter

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Starts counts how often the handling of a message was begun and did not return, for middleware.CrashLoop. Each call
// is a transaction of its own, committed when it returns.
type Starts interface {
	// Begin adds one to the count of key, and returns it; or it does nothing and returns 0 if the event is recorded as
	// processed.
	Begin(ctx context.Context, key dedupstore.Key) (int, error)
	// Pending returns the counts of a consumer's events, those above 0.
	Pending(ctx context.Context, consumer string) (map[string]int, error)
	// End forgets key.
	End(ctx context.Context, key dedupstore.Key) error
	dedupstore.Checker
}
