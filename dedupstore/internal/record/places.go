package record

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"weak"
)

// Places bounds the transactions in flight below the pool's size: workers that hold all connections would starve the
// rest of the service, and functions that ask the pool for a second connection would wait for each other for ever.
type Places struct {
	free chan struct{}
	size int // of the pool
	warn sync.Once
	log  *slog.Logger
}

// NewPlaces leaves one connection of the pool to others, unless it has only one. A pool of 0 connections has no bound.
func NewPlaces(poolSize int, log *slog.Logger) *Places {
	p := &Places{log: log, size: poolSize}
	if poolSize > 0 {
		p.free = make(chan struct{}, max(1, poolSize-1))
	}
	return p
}

// PlacesOf returns the Places of a pool: all stores on one pool share them, or each would leave one connection, and
// together none.
func PlacesOf[Pool any](pool *Pool, size int, log *slog.Logger) *Places {
	if pool == nil || size <= 0 {
		return NewPlaces(size, log)
	}
	sharedMu.Lock()
	defer sharedMu.Unlock()
	key := poolKey{weak.Make(pool), size}
	if p := shared[key]; p != nil {
		return p
	}
	p := NewPlaces(size, log)
	shared[key] = p
	runtime.AddCleanup(pool, func(key poolKey) {
		sharedMu.Lock()
		defer sharedMu.Unlock()
		delete(shared, key)
	}, key)
	return p
}

// poolKey is a pool, which it does not keep, and its size.
type poolKey struct {
	pool any // a weak.Pointer
	size int
}

var (
	sharedMu sync.Mutex
	shared   = map[poolKey]*Places{}
)

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
		p.log.Warn("einmal: transactions wait for each other: the pool has fewer connections than there are workers or requests; raise its size or lower Workers",
			slog.Int("pool_connections", p.size), slog.Int("transactions", cap(p.free)))
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
