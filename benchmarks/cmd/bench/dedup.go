package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// quiet drops what the runner says of joining and leaving.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// order is the event.
type order struct {
	ID    int   `json:"id"`
	Cents int64 `json:"cents"`
}

func orderValue(i int) []byte {
	b, err := json.Marshal(order{ID: i, Cents: int64(i) % 1000})
	if err != nil {
		panic(err) // two integers can be encoded
	}
	return b
}

// effect is what a handler does: one insert.
const effect = `INSERT INTO charge (order_id, cents) VALUES ($1, $2)`

const effectTable = `CREATE TABLE charge (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id bigint NOT NULL, cents bigint NOT NULL)`

// dedupBench is the two sides and what they share.
type dedupBench struct {
	kafka    *servers.Kafka
	database *servers.Database
	proxy    *proxy  // nil without -rtt
	cpu      float64 // of the last round: seconds of this process for a message
}

// dedup measures the full chain beside the plain loop, on each number of partitions.
func dedup(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("dedup", flag.ContinueOnError)
	messages := fs.Int("messages", 20_000, "messages per partition and round")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	rtt := fs.Duration("rtt", 0, "network round trip to the database, made by a proxy")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if *rtt > 0 {
		b.proxy = newProxy(*rtt)
		fmt.Printf("network   %v of round trip to the database\n", *rtt)
	}
	fmt.Printf("dedup transaction: Retry, Recover, Dedup on pgxstore, one insert; beside the plain loop\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\nmessages  %d per partition and round\n",
		b.kafka.Origin, b.database.Origin, machine(), *messages)
	for _, partitions := range []int32{1, 4} {
		n := *messages * int(partitions)
		results, err := interleave(ctx, *rounds, []side{
			{"plain loop", func(ctx context.Context) (float64, error) { return b.round(ctx, partitions, n, b.plain) }},
			{"einmal", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.einmal(consumer.PartitionOrder, 0))
			}},
			{"einmal, 16 by key", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.einmal(consumer.KeyOrder, 16))
			}},
			{"einmal, 32 by key", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.einmal(consumer.KeyOrder, 32))
			}},
		})
		if err != nil {
			return err
		}
		report(os.Stdout, fmt.Sprintf("%d partition(s), msg/s", partitions), results)
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

func openDedup(ctx context.Context) (*dedupBench, error) {
	kafka, err := servers.RealKafka(ctx)
	if err != nil {
		return nil, err
	}
	database, err := servers.Postgres(ctx)
	if err != nil {
		return nil, errors.Join(err, kafka.Close())
	}
	b := &dedupBench{kafka: kafka, database: database}
	if err := b.checkDurable(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *dedupBench) close() { _ = errors.Join(b.database.Close(), b.kafka.Close()) }

// checkDurable refuses a server whose commits are faster than a disk.
func (b *dedupBench) checkDurable(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.database.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, name := range []string{"fsync", "synchronous_commit"} {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("%s is %s on %s: its figures would say nothing; set %s to a server where it is on", name, value,
				b.database.Origin, servers.EnvDatabaseURL)
		}
	}
	return nil
}

// way handles the messages of a topic until the meter has them all.
type way func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error

// round runs a way on a topic, a group and tables of its own, and checks that each message took effect once.
func (b *dedupBench) round(ctx context.Context, partitions int32, messages int, run way) (rate float64, err error) {
	prepare := func(context.Context, *pgxpool.Pool) error { return nil }
	check := func(ctx context.Context, pool *pgxpool.Pool) error { return checkEffects(ctx, pool, messages) }
	return b.roundOn(ctx, partitions, messages, run, prepare, check)
}

// step is something that is done with a round's database.
type step func(ctx context.Context, pool *pgxpool.Pool) error

// roundOn runs a way on a topic, a group and tables of its own, between two steps.
func (b *dedupBench) roundOn(ctx context.Context, partitions int32, messages int, run way, prepare,
	check step) (rate float64, err error) {
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
	if err := errors.Join(makeTables(ctx, pool), prepare(ctx, pool)); err != nil {
		return 0, err
	}
	err = withTopic(b.kafka.Addrs, partitions, messages, orderValue, func(topic string) error {
		m := newMeter(messages)
		rate, err = m.until(ctx, func(ctx context.Context) error { return run(ctx, topic, pool, m) })
		b.cpu = m.cpu()
		return err
	})
	return rate, errors.Join(err, check(ctx, pool))
}

// openPool gives each partition a connection and more: pgx's default is 4 on a small machine, of which pgxstore leaves
// one to others.
func openPool(ctx context.Context, url string, p *proxy) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 40
	if p != nil {
		cfg.ConnConfig.DialFunc = p.dial
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

func makeTables(ctx context.Context, pool *pgxpool.Pool) error {
	exec := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	return errors.Join(schema.Postgres.Apply(ctx, exec, nil, schema.Dedup), exec(ctx, effectTable))
}

func checkEffects(ctx context.Context, pool *pgxpool.Pool, messages int) error {
	var rows, orders int
	if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT order_id) FROM charge`).Scan(&rows,
		&orders); err != nil {
		return err
	}
	if rows != messages || orders != messages {
		return fmt.Errorf("%d messages made %d rows of %d orders", messages, rows, orders)
	}
	return nil
}

// einmal is what a user of einmal writes.
func (b *dedupBench) einmal(by consumer.Order, workers int) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		return consumer.Run(ctx, b.config(topic, pool, m, by, workers))
	}
}

func (b *dedupBench) config(topic string, pool *pgxpool.Pool, m *meter, by consumer.Order,
	workers int) consumer.Config {
	charge := func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, effect, o.ID, o.Cents)
		return err
	}
	return consumer.Config{
		Brokers: b.kafka.Addrs, Group: unique(), Logger: quiet,
		Middleware: []consumer.Middleware{m.link},
		Topics: map[string]consumer.Topic{topic: {
			Order: by, Workers: workers,
			Middleware: []consumer.Middleware{middleware.Retry(5, nil), middleware.Recover()},
			Handler:    middleware.Dedup(pgxstore.New(pool, nil), consumer.JSONTx(charge), nil),
		}},
	}
}

// plain is the same transaction by hand: BEGIN, record, insert, COMMIT, each a round trip, and then the mark.
func (b *dedupBench) plain(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
	// not ctx: it ends when the last message has, and the others' transactions with it; but one that can end, as a
	// session's
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	handle := func(msg *sarama.ConsumerMessage) error { return plainTransaction(lasting, pool, topic, msg) }
	loop := &bare{handle: handle, meter: m}
	return loop.consume(ctx, b.kafka.Addrs, topic)
}

const record = `INSERT INTO processed_event (event_id, consumer_id) VALUES ($1, $2)
	ON CONFLICT (event_id, consumer_id) DO UPDATE SET duplicates = processed_event.duplicates + 1
	RETURNING (xmax = 0) AS inserted`

func plainTransaction(ctx context.Context, pool *pgxpool.Pool, consumerID string, msg *sarama.ConsumerMessage) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after COMMIT it does nothing
	var inserted bool
	if err := tx.QueryRow(ctx, record, string(msg.Headers[0].Value), consumerID).Scan(&inserted); err != nil {
		return err
	}
	if inserted {
		var o order
		if err := json.Unmarshal(msg.Value, &o); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, effect, o.ID, o.Cents); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
