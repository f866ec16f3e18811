package pgxstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// BenchmarkOnce measures calls with one insert in the function. The server runs as it is: with synchronous_commit, its
// disk is what is measured.
func BenchmarkOnce(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("first/workers=%d", workers), func(b *testing.B) {
			once(b, workers, func(i int64) string { return fmt.Sprint("event ", i) })
		})
		b.Run(fmt.Sprintf("duplicate/workers=%d", workers), func(b *testing.B) {
			once(b, workers, func(i int64) string { return fmt.Sprint("event ", i%1000) })
		})
	}
}

// once calls Once for as many events as the benchmark wants, among so many workers.
func once(b *testing.B, workers int, event func(i int64) string) {
	db := open(b)
	store := pgxstore.New(db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = int32(workers) + 1 }), nil)
	insert := func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, "effect") }
	for i := range int64(1000) { // the duplicates' first deliveries, and warm connections
		if _, err := store.Once(b.Context(), key(event(-i)), insert); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if _, err := store.Once(b.Context(), key(event(i)), insert); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
