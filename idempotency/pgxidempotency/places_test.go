package pgxidempotency_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A consumer's store and a server's leave a connection of their pool to others together: functions that ask for a
// second one would wait for each other for ever.
func TestStoresOfOnePool(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var both sync.WaitGroup
	for _, store := range []dedupstore.Transactor[pgx.Tx]{pgxstore.New(pool, nil), pgxidempotency.New(pool, nil)} {
		both.Go(func() {
			err := store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
				time.Sleep(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, err := pool.Exec(ctx, "select 1")
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}
