package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// groupCases measures groups where not all is well: messages that fail, rows that all want, functions that wait; and
// where a group is of no use: one message at a time. Each is beside what it has to be compared with.
func (b *dedupBench) groupCases(ctx context.Context, only string, messages, size, rounds int) error {
	failing := func(by consumer.Order, every, group int) way {
		return b.difficult(by, 0, group, func(ctx context.Context, tx pgx.Tx, o order) error {
			if _, err := tx.Exec(ctx, effect, o.ID, o.Cents); err != nil {
				return err
			}
			if every > 0 && o.ID%every == 0 {
				return consumer.Permanent(errDifficult)
			}
			return nil
		})
	}
	counters := func(group int) way {
		return b.difficult(consumer.Unordered, 0, group, func(ctx context.Context, tx pgx.Tx, _ order) error {
			_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE id = $1", rand.IntN(100))
			return err
		})
	}
	waiting := func(group int) way {
		return b.difficult(consumer.Unordered, 32, group, func(ctx context.Context, tx pgx.Tx, o order) error {
			time.Sleep(2 * time.Millisecond)
			_, err := tx.Exec(ctx, effect, o.ID, o.Cents)
			return err
		})
	}
	round := func(w way, partitions int32) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.unchecked(ctx, partitions, messages, w) }
	}
	for _, c := range []struct {
		what  string
		sides []side
	}{
		{"1 in 100 fails for good, PartitionOrder", []side{
			{"none fails", round(failing(consumer.PartitionOrder, 0, size), 1)},
			{"1 in 100 fails", round(failing(consumer.PartitionOrder, 100, size), 1)},
		}},
		{"1 in 100 fails for good, KeyOrder", []side{
			{"none fails", round(failing(consumer.KeyOrder, 0, size), 1)},
			{"1 in 100 fails", round(failing(consumer.KeyOrder, 100, size), 1)},
		}},
		{"all fail, KeyOrder", []side{
			{"without Group", round(failing(consumer.KeyOrder, 1, 0), 1)},
			{"Group", round(failing(consumer.KeyOrder, 1, size), 1)},
		}},
		{"100 hot counters, 4 partitions", []side{{"without Group", round(counters(0), 4)},
			{"Group", round(counters(size), 4)}}},
		{"functions wait 2 ms, 32 workers", []side{{"without Group", round(waiting(0), 4)},
			{"Group", round(waiting(size), 4)}}},
		{"one message at a time", []side{
			{"without Group", func(ctx context.Context) (float64, error) { return b.alone(ctx, messages, 0) }},
			{"Group", func(ctx context.Context) (float64, error) { return b.alone(ctx, messages, size) }},
		}},
		{"SQLite, WAL, synchronous=FULL", []side{
			{"without Group", func(ctx context.Context) (float64, error) { return onSQLite(ctx, messages, 0) }},
			{"Group", func(ctx context.Context) (float64, error) { return onSQLite(ctx, messages, size) }},
		}},
	} {
		if !strings.Contains(c.what, only) {
			continue
		}
		results, err := interleave(ctx, rounds, c.sides)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		report(os.Stdout, c.what, results)
	}
	return nil
}

var errDifficult = errors.New("this message fails")

// difficult is a chain with dead letters.
func (b *dedupBench) difficult(by consumer.Order, workers, group int,
	handle func(context.Context, pgx.Tx, order) error) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		store := pgxstore.New(pool, &pgxstore.Config{Group: group})
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		return consumer.Run(ctx, consumer.Config{
			Brokers: b.kafka.Addrs, Group: unique(), Logger: log,
			Middleware: []consumer.Middleware{m.link},
			Topics: map[string]consumer.Topic{topic: {
				Order: by, Workers: workers,
				Middleware: []consumer.Middleware{
					middleware.DeadLetter(store, pgxdeadletter.New(pool, nil),
						&middleware.DeadLetterConfig{Logger: log, PerSecond: -1}),
					middleware.Retry(5, nil), middleware.Recover(),
				},
				Handler: middleware.Dedup(store, consumer.JSONTx(handle), nil),
			}},
		})
	}
}

// unchecked is round without a check of the effects, with tables for all of the cases.
func (b *dedupBench) unchecked(ctx context.Context, partitions int32, messages int, run way) (rate float64, err error) {
	return b.roundOn(ctx, partitions, messages, run, func(ctx context.Context, pool *pgxpool.Pool) error {
		exec := func(ctx context.Context, sql string) error {
			_, err := pool.Exec(ctx, sql)
			return err
		}
		return errors.Join(schema.Postgres.Apply(ctx, exec, nil, schema.DeadLetter),
			exec(ctx, "CREATE TABLE counter AS SELECT id, 0::bigint AS n FROM generate_series(0, 99) id"),
			exec(ctx, "CREATE UNIQUE INDEX ON counter (id)"))
	}, func(context.Context, *pgxpool.Pool) error { return nil })
}

// alone calls the store with one message after the other.
func (b *dedupBench) alone(ctx context.Context, messages, group int) (rate float64, err error) {
	s, err := b.database.NewSchema(ctx, "bench")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Drop(context.WithoutCancel(ctx))) }()
	pool, err := openPool(ctx, s.URL, b.proxy)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if err := makeTables(ctx, pool); err != nil {
		return 0, err
	}
	store := pgxstore.New(pool, &pgxstore.Config{Group: group})
	began := time.Now()
	for i := range messages {
		if _, err := store.Once(ctx, dedupstore.Key{Consumer: "alone", Event: fmt.Sprint(i)},
			func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, effect, i, i)
				return err
			}); err != nil {
			return 0, err
		}
	}
	return float64(messages) / time.Since(began).Seconds(), nil
}

// onSQLite calls a store on a file, as many messages at once as a consumer has in work by default with such a group.
func onSQLite(ctx context.Context, messages, group int) (rate float64, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "db")+
		"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, text := range []string{schema.SQLite.SQL(nil, schema.Dedup), "CREATE TABLE charge (orderid integer NOT NULL)"} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return 0, err
		}
	}
	store := sqlstore.New(db, schema.SQLite, &sqlstore.Config{Group: group})
	workers := consumer.DefaultWorkers
	if group > 1 {
		workers = 2 * group
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(messages); i = next.Add(1) {
				if _, err := store.Once(ctx, dedupstore.Key{Consumer: "sqlite", Event: fmt.Sprint(i)},
					func(ctx context.Context, tx *sql.Tx) error {
						_, err := tx.ExecContext(ctx, "INSERT INTO charge VALUES (?)", i)
						return err
					}); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(messages) / time.Since(began).Seconds(), nil
}
