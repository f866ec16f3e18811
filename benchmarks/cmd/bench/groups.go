package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/middleware"
)

// groups measures many messages in one transaction, beside hand-written loops that do the same batching without any
// guarantee.
func groups(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("groups", flag.ContinueOnError)
	messages := fs.Int("messages", 50_000, "messages per partition and round")
	size := fs.Int("group", 200, "messages per transaction")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	cases := fs.Bool("cases", false,
		"measure failures, contended rows, functions that wait, single messages and SQLite instead")
	only := fs.String("only", "", "those cases, or ways beside the first, in whose name this stands")
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
	fmt.Printf("groups: %d messages in one transaction, one insert each; beside loops by hand\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\nmessages  %d per partition and round\n",
		*size, b.kafka.Origin, b.database.Origin, machine(), *messages)
	if *cases {
		return b.groupCases(ctx, *only, *messages, *size, *rounds)
	}
	for _, partitions := range []int32{1, 4} {
		n := *messages * int(partitions)
		used := cpuUse{b: b}
		results, err := interleave(ctx, *rounds, used.of(chosen(*only, []side{
			{"loop, one by one", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.batches(*size, oneByOne))
			}},
			{"loop, queued", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.batches(*size, queued))
			}},
			{"plain loop", func(ctx context.Context) (float64, error) { return b.round(ctx, partitions, n, b.plain) }},
			{"Group, KeyOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.grouped(consumer.KeyOrder, *size))
			}},
			{"Group, Unordered", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.grouped(consumer.Unordered, *size))
			}},
			{"Group, PartitionOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.grouped(consumer.PartitionOrder, *size))
			}},
			{"queued, KeyOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.groupedQueued(consumer.KeyOrder, *size))
			}},
			{"queued, PartitionOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.groupedQueued(consumer.PartitionOrder, *size))
			}},
			{"rows by COPY, KeyOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.groupedRows(consumer.KeyOrder, *size))
			}},
			{"rows by COPY, PartitionOrder", func(ctx context.Context) (float64, error) {
				return b.round(ctx, partitions, n, b.groupedRows(consumer.PartitionOrder, *size))
			}},
		})))
		if err != nil {
			return err
		}
		report(os.Stdout, fmt.Sprintf("%d partition(s), msg/s", partitions), results)
		report(os.Stdout, "client CPU, µs/msg", used.results)
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

// cpuUse notes what CPU time of this process a message took, beside the rates.
type cpuUse struct {
	b       *dedupBench
	results []result
}

func (u *cpuUse) of(sides []side) []side {
	u.results = make([]result, len(sides))
	for i, s := range sides {
		u.results[i].name = s.name
		sides[i].run = func(ctx context.Context) (float64, error) {
			rate, err := s.run(ctx)
			u.results[i].rates = append(u.results[i].rates, u.b.cpu*1e6)
			return rate, err
		}
	}
	return sides
}

// grouped is what a user of einmal writes.
func (b *dedupBench) grouped(by consumer.Order, size int) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		charge := func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, effect, o.ID, o.Cents)
			return err
		}
		store := pgxstore.New(pool, &pgxstore.Config{Group: size})
		return b.consume(ctx, topic, by, m, middleware.Dedup(store, consumer.JSONTx(charge), nil))
	}
}

// groupedQueued is the same with a handler that queues its statements.
func (b *dedupBench) groupedQueued(by consumer.Order, size int) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		charge := func(_ context.Context, batch *pgx.Batch, o order) error {
			batch.Queue(effect, o.ID, o.Cents)
			return nil
		}
		store := pgxstore.NewBatch(pool, &pgxstore.Config{Group: size})
		return b.consume(ctx, topic, by, m, middleware.Dedup(store, consumer.JSONTx(charge), nil))
	}
}

// groupedRows is the same with handlers whose rows one function copies.
func (b *dedupBench) groupedRows(by consumer.Order, size int) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		charge := func(_ context.Context, rows *dedupstore.Rows[order], o order) error {
			rows.Add(o)
			return nil
		}
		store := pgxstore.NewRows(pool, &pgxstore.Config{Group: size},
			func(ctx context.Context, tx pgx.Tx, orders []order) error {
				next := func(i int) ([]any, error) { return []any{orders[i].ID, orders[i].Cents}, nil }
				_, err := tx.CopyFrom(ctx, pgx.Identifier{"charge"}, []string{"order_id", "cents"},
					pgx.CopyFromSlice(len(orders), next))
				return err
			})
		return b.consume(ctx, topic, by, m, middleware.Dedup(store, consumer.JSONTx(charge), nil))
	}
}

func (b *dedupBench) consume(ctx context.Context, topic string, by consumer.Order, m *meter,
	handler consumer.Handler) error {
	return consumer.Run(ctx, consumer.Config{
		Brokers: b.kafka.Addrs, Group: unique(), Logger: quiet,
		Middleware: []consumer.Middleware{m.link},
		Topics: map[string]consumer.Topic{topic: {
			Order:      by,
			Middleware: []consumer.Middleware{middleware.Retry(5, nil), middleware.Recover()},
			Handler:    handler,
		}},
	})
}

// transaction handles messages in one transaction.
type transaction func(ctx context.Context, pool *pgxpool.Pool, topic string, msgs []*sarama.ConsumerMessage) error

// batches is a loop that puts all messages that wait, up to so many, into one transaction.
func (b *dedupBench) batches(size int, run transaction) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		loop := &batching{size: size, meter: m,
			handle: func(msgs []*sarama.ConsumerMessage) error { return run(lasting, pool, topic, msgs) }}
		cfg := clientConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		group, err := sarama.NewConsumerGroup(b.kafka.Addrs, unique(), cfg)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, loop); err != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		return group.Close()
	}
}

// batching is a consumer group's handler.
type batching struct {
	size   int
	meter  *meter
	handle func([]*sarama.ConsumerMessage) error
}

func (b *batching) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (b *batching) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (b *batching) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		b.meter.start()
		msgs := []*sarama.ConsumerMessage{msg}
		for more := true; more && len(msgs) < b.size; {
			select {
			case next, open := <-claim.Messages():
				if more = open; open {
					msgs = append(msgs, next)
				}
			default:
				more = false
			}
		}
		if err := b.handle(msgs); err != nil {
			return err
		}
		session.MarkMessage(msgs[len(msgs)-1], "")
		for range msgs {
			b.meter.end()
		}
	}
	return nil
}

// oneByOne sends each statement by itself.
func oneByOne(ctx context.Context, pool *pgxpool.Pool, topic string, msgs []*sarama.ConsumerMessage) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, msg := range msgs {
			var inserted bool
			if err := tx.QueryRow(ctx, record, string(msg.Headers[0].Value), topic).Scan(&inserted); err != nil {
				return err
			}
			if !inserted {
				continue
			}
			var o order
			if err := json.Unmarshal(msg.Value, &o); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, effect, o.ID, o.Cents); err != nil {
				return err
			}
		}
		return nil
	})
}

// queued sends all records together, and then all effects.
func queued(ctx context.Context, pool *pgxpool.Pool, topic string, msgs []*sarama.ConsumerMessage) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		inserted := make([]bool, len(msgs))
		records := &pgx.Batch{}
		for i, msg := range msgs {
			records.Queue(record, string(msg.Headers[0].Value),
				topic).QueryRow(func(row pgx.Row) error { return row.Scan(&inserted[i]) })
		}
		if err := tx.SendBatch(ctx, records).Close(); err != nil {
			return err
		}
		effects := &pgx.Batch{}
		for i, msg := range msgs {
			if !inserted[i] {
				continue
			}
			var o order
			if err := json.Unmarshal(msg.Value, &o); err != nil {
				return err
			}
			effects.Queue(effect, o.ID, o.Cents)
		}
		if effects.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, effects).Close()
	})
}

// chosen is the first side, and those in whose name only stands.
func chosen(only string, sides []side) []side {
	return append(sides[:1:1], slices.DeleteFunc(sides[1:],
		func(s side) bool { return !strings.Contains(s.name, only) })...)
}
