package middleware

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// recorder is a link that records effects, whatever its type of transaction is.
type recorder interface {
	recordsIn() (store any)
}

// inside are the recorders that stand inside a link, as far as consumer.New has seen them. It is safe for concurrent
// use.
type inside struct {
	mu        sync.Mutex
	recorders []recorder
}

// stands is called with the Validate of r.
func (i *inside) stands(r recorder) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Contains(i.recorders, r) {
		i.recorders = append(i.recorders, r)
	}
}

// tellOutside tells the links around r of it that ask for that.
func tellOutside(outside []consumer.Handler, r recorder) {
	for _, h := range outside {
		if o, ok := h.(interface{ stands(r recorder) }); ok {
			o.stands(r)
		}
	}
}

// checkSameTable refuses a store of dead letters that records elsewhere than the effects inside: a handler would run
// after its dead letter.
func (i *inside) checkSameTable(ctx context.Context, store any) error {
	i.mu.Lock()
	recorders := slices.Clone(i.recorders)
	i.mu.Unlock()
	for _, r := range recorders {
		here, err := identityOf(ctx, store)
		if err != nil {
			return err
		}
		there, err := identityOf(ctx, r.recordsIn())
		if err != nil {
			return err
		}
		if here != "" && there != "" && here != there {
			return fmt.Errorf("middleware.DeadLetter: its store records in another table (%s) than the Dedup inside (%s), so that an event could take effect after its dead letter: "+
				"pass the store that Dedup has, or one on the same table", here, there)
		}
	}
	return nil
}

// identityOf is the identity of a store that can tell, or empty.
func identityOf(ctx context.Context, store any) (string, error) {
	i, ok := store.(dedupstore.Identifier)
	if !ok {
		return "", nil
	}
	id, err := i.Identity(ctx)
	return id, askedAgain(err)
}
