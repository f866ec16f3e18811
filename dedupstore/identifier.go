package dedupstore

import "context"

// Identifier is implemented by stores that can tell which table they record in, whatever connections, drivers and names
// lead to it. Two stores with one identity know each other's records; two with different ones do not. It is empty where
// it cannot be told. An error is that of the question.
//
// middleware.DeadLetter compares its store with that of the Dedup inside by it.
type Identifier interface {
	Identity(ctx context.Context) (string, error)
}
