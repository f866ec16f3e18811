package record

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// Places bounds the transactions in flight below the pool's size: workers that hold all connections would starve the rest of the
// service, and functions that ask the pool for a second connection would wait for each other for ever.
type Places struct {
	free chan struct{}
	warn sync.Once
	log  *slog.Logger
}

// NewPlaces leaves one connection of the pool to others, unless it has only one. A pool of 0 connections has no bound.
func NewPlaces(poolSize int, log *slog.Logger) *Places {
	p := &Places{log: log}
	if poolSize > 0 {
		p.free = make(chan struct{}, max(1, poolSize-1))
	}
	return p
}

// Enter waits for a place.
func (p *Places) Enter(ctx context.Context) error {
	if p.free == nil {
		return nil
	}
	select {
	case p.free <- struct{}{}:
		return nil
	default:
	}
	p.warn.Do(func() {
		p.log.Warn("einmal: transactions wait for each other: the pool has fewer connections than there are workers; raise its size or lower Workers",
			slog.Int("transactions", cap(p.free)))
	})
	select {
	case p.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a free connection: %w", cause(ctx))
	}
}

// Leave gives the place back.
func (p *Places) Leave() {
	if p.free != nil {
		<-p.free
	}
}
