package deadletter

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Starts counts how often the handling of a message was begun and did not return, for middleware.CrashLoop. Each call is a transaction
// of its own, committed when it returns.
type Starts interface {
	// Begin adds one to the count of key, and returns it.
	Begin(ctx context.Context, key dedupstore.Key) (int, error)
	// End forgets key.
	End(ctx context.Context, key dedupstore.Key) error
	dedupstore.Checker
}
