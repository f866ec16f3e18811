package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// sweeps measures what a janitor that works off a backlog costs a consumer that works meanwhile, on the same table.
func sweeps(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("janitor", flag.ContinueOnError)
	messages := fs.Int("messages", 16_000, "messages per round")
	backlog := fs.Int("backlog", 300_000, "old records in the table when a round begins")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("janitor: Retry, Recover, Dedup on pgxstore, one insert, 16 workers by key, beside a janitor that works off a backlog\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\nmessages  %d per round, %d old records\n",
		b.kafka.Origin, b.database.Origin, machine(), *messages, *backlog)
	const partitions = 4
	deleted := map[string][]int64{} // by side, while messages were handled
	beside := func(name string, cfg *janitor.Config) side {
		return side{name, func(ctx context.Context) (float64, error) {
			return b.round(ctx, partitions, *messages,
				func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
					n, err := b.swept(ctx, topic, pool, m, *backlog, cfg)
					deleted[name] = append(deleted[name], n)
					return err
				})
		}}
	}
	results, err := interleave(ctx, *rounds, []side{
		beside("no janitor", nil),
		beside("janitor, defaults", &janitor.Config{}),
		beside("janitor, 1 ms pauses", &janitor.Config{Pause: time.Millisecond}),
	})
	if err != nil {
		return err
	}
	report(os.Stdout, fmt.Sprintf("%d partitions, msg/s", partitions), results)
	for _, r := range results {
		fmt.Printf("  %-20s records deleted meanwhile: %v\n", r.name, deleted[r.name])
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

// swept consumes a topic, beside a janitor that begins with the first message, if cfg is not nil. It returns what that
// has deleted.
func (b *dedupBench) swept(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter, backlog int,
	cfg *janitor.Config) (int64, error) {
	const fill = `INSERT INTO processed_event (event_id, consumer_id, processed_at)
		SELECT gen_random_uuid()::text, 'old', now() - interval '30 days' + g * interval '1 millisecond' FROM generate_series(1, $1::int) g`
	if _, err := pool.Exec(ctx, fill, backlog); err != nil {
		return 0, err
	}
	if _, err := pool.Exec(ctx, "ANALYZE processed_event"); err != nil {
		return 0, err
	}
	if cfg == nil {
		return 0, consumer.Run(ctx, b.config(topic, pool, m, consumer.KeyOrder, 16))
	}
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	defer db.Close()
	j, err := newJanitor(db, *cfg)
	if err != nil {
		return 0, err
	}
	sweeping, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for !m.started.Load() && sweeping.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = j.Run(sweeping)
	})
	err = consumer.Run(ctx, b.config(topic, pool, m, consumer.KeyOrder, 16))
	stop()
	wg.Wait()
	return j.Status().Tables[0].Deleted, err
}

func newJanitor(db *sql.DB, cfg janitor.Config) (*janitor.Janitor, error) {
	cfg.Tables = []janitor.Table{{Name: "processed_event", Column: "processed_at", Keep: 7 * 24 * time.Hour}}
	cfg.Logger = slog.New(slog.DiscardHandler)
	return janitor.New(db, schema.Postgres, cfg)
}
