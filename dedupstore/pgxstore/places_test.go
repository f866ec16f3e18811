package pgxstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// 32 calls on a pool of 4 wait for each other, leave one connection to the rest of the service, and say so once.
func TestTransactionsLeaveAConnection(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	store := pgxstore.New(pool, &pgxstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})

	inside, release := make(chan struct{}, 32), make(chan struct{})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			key := dedupstore.Key{Consumer: "c", Event: fmt.Sprint(i)}
			if ran, err := store.Once(context.Background(), key, func(context.Context, pgx.Tx) error {
				inside <- struct{}{}
				<-release
				return nil
			}); !ran || err != nil {
				t.Errorf("event %d: %v, %v", i, ran, err)
			}
		})
	}
	for range 3 {
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var one int
	if err := pool.QueryRow(ctx, "select 1").Scan(&one); err != nil {
		t.Errorf("the rest of the service finds no connection: %v", err)
	}
	waiting, cancelWaiting := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancelWaiting(stop)
	if _, err := store.Once(waiting, dedupstore.Key{Consumer: "c", Event: "x"},
		func(context.Context, pgx.Tx) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("a call whose context ends while it waits: %v", err)
	}
	if len(inside) != 0 {
		t.Errorf("%d more transactions run than a pool of 4 leaves", len(inside))
	}
	close(release)
	wg.Wait()
	if n := strings.Count(log.String(), "transactions wait"); n != 1 {
		t.Errorf("warned %d times: %s", n, log.String())
	}
}
