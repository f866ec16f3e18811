package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
)

// The messages of one key share transactions, and take effect in their order.
func TestTrainsOfAKey(t *testing.T) {
	t.Parallel()
	g := newGrouped(t, consumer.KeyOrder, 1, groupMessages)
	if _, err := g.pool.Exec(t.Context(), "create table tried (id text)"); err != nil {
		t.Fatal(err)
	}
	g.run(t, g.config(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		_, err := tx.Exec(ctx, "insert into effect (part, place, key, id) values ($1, $2, $3, $4)", msg.Partition, msg.Offset,
			string(msg.Key), msg.EventID)
		return err
	}), func() bool { return g.value(t, "select count(*) from effect") == groupMessages })
	if n := g.value(t, "select count(*) from (select place < lag(place) over (partition by key order by n) as back from effect) e where back"); n != 0 {
		t.Errorf("%d effects out of their order", n)
	}
	most := g.value(t, "select max(n) from (select key, xmin::text, count(*) as n from effect group by 1, 2) e")
	if most < 5 {
		t.Errorf("at most %d messages of a key share a transaction", most)
	}
}

// Hot keys that fail, or that are held up in front of the store, keep neither the workers nor the transactions of
// others: as many as there are workers could wait behind each of them. What waits behind a message that failed is not
// tried.
func TestHotKeysLeaveOthersFree(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"failing": false, "held up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGrouped(t, consumer.KeyOrder, 4, groupMessages)
			const keysOfPartition = groupKeys / groupPartitions
			var hot []string // two keys in each partition, of 60 messages each
			for p := range groupPartitions {
				hot = append(hot, fmt.Sprint(p, "-", p), fmt.Sprint(p, "-", p+groupPartitions))
			}
			isHot := func(msg *consumer.Message) bool { return slices.Contains(hot, string(msg.Key)) }
			var open atomic.Bool
			var behind atomic.Int64
			cfg := g.config(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				if isHot(msg) && !open.Load() {
					if msg.Offset >= keysOfPartition {
						behind.Add(1)
					}
					return consumer.RetryAfter(500*time.Millisecond, errOfMessage)
				}
				_, err := tx.Exec(ctx, "insert into effect (part, place, key, id) values ($1, $2, $3, $4)", msg.Partition,
					msg.Offset, string(msg.Key), msg.EventID)
				return err
			})
			opened := make(chan struct{})
			topic := cfg.Topics[g.topic]
			topic.Workers = 30
			topic.Middleware = append(topic.Middleware, func(next consumer.Handler) consumer.Handler {
				return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
					if held && isHot(msg) {
						select {
						case <-opened:
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return next.Handle(ctx, msg)
				})
			})
			cfg.Topics[g.topic] = topic
			cold := groupPartitions * groupMessages * (keysOfPartition - 2) / keysOfPartition
			wasCold := false
			g.run(t, cfg, func() bool {
				n := g.value(t, "select count(*) from effect")
				if n == cold && !wasCold {
					wasCold = true
					open.Store(true)
					close(opened)
				}
				return n == groupPartitions*groupMessages
			})
			if n := behind.Load(); n != 0 {
				t.Errorf("messages that stand behind a failed one were tried %d times", n)
			}
			if n := g.value(t, "select count(*) from (select place < lag(place) over (partition by key order by n) as back from effect) e where back"); n != 0 {
				t.Errorf("%d effects out of their order", n)
			}
		})
	}
}
