package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
)

// repeat measures what a repeated message costs: the topic is consumed once, then a second time by another group with
// the same Topic.Consumer, so that all of it is found in the records.
func repeat(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("repeat", flag.ContinueOnError)
	messages := fs.Int("messages", 20_000, "messages per partition and round")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("repeated messages: Retry, Recover, Dedup on pgxstore, each event recorded before; beside the first time\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\nmessages  %d per partition and round\n",
		b.kafka.Origin, b.database.Origin, machine(), *messages)
	for _, partitions := range []int32{1, 4} {
		n := *messages * int(partitions)
		var sides []side
		for _, by := range []consumer.Order{consumer.PartitionOrder, consumer.Unordered} {
			sides = append(sides,
				side{fmt.Sprintf("%v, first time", by),
					func(ctx context.Context) (float64, error) { return b.round(ctx, partitions, n, b.named(by)) }},
				side{fmt.Sprintf("%v, repeated", by),
					func(ctx context.Context) (float64, error) { return b.again(ctx, partitions, n, by) }})
		}
		results, err := interleave(ctx, *rounds, sides)
		if err != nil {
			return err
		}
		report(os.Stdout, fmt.Sprintf("%d partition(s), msg/s", partitions), results)
	}
	return nil
}

// named consumes under a name that does not change with the group.
func (b *dedupBench) named(by consumer.Order) way {
	return func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
		cfg := b.config(topic, pool, m, by, 0)
		t := cfg.Topics[topic]
		t.Consumer = "repeat"
		cfg.Topics[topic] = t
		return consumer.Run(ctx, cfg)
	}
}

// again is a round that measures the second time.
func (b *dedupBench) again(ctx context.Context, partitions int32, messages int, by consumer.Order) (rate float64,
	err error) {
	_, err = b.round(ctx, partitions, messages,
		func(ctx context.Context, topic string, pool *pgxpool.Pool, m *meter) error {
			first, second := newMeter(messages), newMeter(messages)
			_, err := first.until(ctx, func(ctx context.Context) error { return b.named(by)(ctx, topic, pool, first) })
			if err == nil {
				rate, err = second.until(ctx, func(ctx context.Context) error { return b.named(by)(ctx, topic, pool, second) })
			}
			m.start()
			m.ended.Store(m.total - 1)
			m.end() // the round's own meter has seen nothing
			return err
		})
	return rate, err
}
