package pgxstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// places bounds the transactions in flight below the pool's size: workers that hold all connections would starve the rest of the
// service, and functions that ask the pool for a second connection would wait for each other for ever.
type places struct {
	free chan struct{}
	warn sync.Once
	log  *slog.Logger
}

func newPlaces(pool *pgxpool.Pool, log *slog.Logger) *places {
	p := &places{log: log}
	if pool != nil {
		p.free = make(chan struct{}, max(1, int(pool.Config().MaxConns)-1))
	}
	return p
}

// enter waits for a place.
func (p *places) enter(ctx context.Context) error {
	select {
	case p.free <- struct{}{}:
		return nil
	default:
	}
	p.warn.Do(func() {
		p.log.Warn("einmal: transactions wait for each other: the pool has fewer connections than there are workers; raise its MaxConns or lower Workers",
			slog.Int("transactions", cap(p.free)))
	})
	select {
	case p.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pgxstore: wait for a free connection: %w", context.Cause(ctx))
	}
}

func (p *places) leave() { <-p.free }
