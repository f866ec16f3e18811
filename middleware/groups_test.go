package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

const (
	groupPartitions = 4
	groupMessages   = 300 // of a partition
	groupKeys       = 20
)

// grouped is a service whose transactions are shared by many messages, some of which fail once, twice or for good.
type grouped struct {
	pool   *pgxpool.Pool
	broker *serverstest.Broker
	group  string
	topic  string
	order  consumer.Order

	mu       sync.Mutex
	attempts map[string]int
}

var errOfMessage = errors.New("this message fails")

func newGrouped(t *testing.T, order consumer.Order, partitions, messages int) *grouped {
	t.Helper()
	g := &grouped{
		pool: serverstest.Pool(t), broker: serverstest.InProcess(t), group: serverstest.Group(t), order: order,
		attempts: map[string]int{},
	}
	exec := func(ctx context.Context, sql string) error {
		_, err := g.pool.Exec(ctx, sql)
		return err
	}
	err := errors.Join(
		schema.Postgres.Apply(t.Context(), exec, nil, schema.Dedup, schema.DeadLetter),
		exec(t.Context(), "create table effect (n bigint generated always as identity, part int, place bigint, key text, id text)"),
	)
	if err != nil {
		t.Fatal(err)
	}
	g.topic = g.broker.Topic(t, int32(partitions))
	var msgs []*sarama.ProducerMessage
	for i := range partitions * messages {
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: g.topic, Partition: int32(i % partitions),
			Key:     sarama.StringEncoder(fmt.Sprint(i%partitions, "-", i%groupKeys)),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, i)}},
		})
	}
	g.broker.Produce(t, msgs...)
	return g
}

// handle fails with some messages: one in 40 once, one in 60 twice, one in 100 for good.
func (g *grouped) handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	var i int
	if _, err := fmt.Sscan(msg.EventID, &i); err != nil {
		return err
	}
	g.mu.Lock()
	g.attempts[msg.EventID]++
	attempt := g.attempts[msg.EventID]
	g.mu.Unlock()
	if _, err := tx.Exec(ctx, "insert into effect (part, place, key, id) values ($1, $2, $3, $4)", msg.Partition,
		msg.Offset, string(msg.Key), msg.EventID); err != nil {
		return err
	}
	switch {
	case i%100 == 17:
		return consumer.Permanent(errOfMessage)
	case i%60 == 31 && attempt <= 2, i%40 == 7 && attempt == 1:
		return errOfMessage
	}
	return nil
}

func (g *grouped) config(handle consumer.TxHandler[pgx.Tx]) consumer.Config {
	store := pgxstore.New(g.pool, &pgxstore.Config{Group: 50})
	log := slog.New(slog.DiscardHandler)
	return consumer.Config{
		Brokers: g.broker.Addrs, Group: g.group, Logger: log,
		Topics: map[string]consumer.Topic{g.topic: {
			Order: g.order,
			Middleware: []consumer.Middleware{
				middleware.DeadLetter(store, pgxdeadletter.New(g.pool, nil), &middleware.DeadLetterConfig{Logger: log}),
				middleware.Retry(5, &middleware.RetryConfig{Base: 20 * time.Millisecond}),
				middleware.Recover(), middleware.Timeout(20 * time.Second),
			},
			Handler: middleware.Dedup(store, handle, nil),
		}},
	}
}

func (g *grouped) value(t *testing.T, sql string) (n int) {
	t.Helper()
	if err := g.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// run consumes until done says so, and returns how long the stop took.
func (g *grouped) run(t *testing.T, cfg consumer.Config, done func() bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx, cfg) }()
	for limit := time.Now().Add(3 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Error("not within 3 minutes")
			break
		}
	}
	began := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// Every message takes effect once or is dead, in its order, through failures and restarts.
func TestGroupsOnAConsumer(t *testing.T) {
	t.Parallel()
	for _, order := range []consumer.Order{consumer.PartitionOrder, consumer.KeyOrder, consumer.Unordered} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			g := newGrouped(t, order, groupPartitions, groupMessages)
			total := groupPartitions * groupMessages
			settled := func() int {
				return g.value(t, "select (select count(*) from effect) + (select count(*) from dead_message)")
			}
			cfg := g.config(g.handle)
			g.run(t, cfg, func() bool { return settled() > total/3 }) // a stop in the middle
			g.run(t, cfg, func() bool { return settled() >= total })
			if n := g.value(t, "select count(distinct id) from effect"); n != total-total/100 {
				t.Errorf("%d events took effect, want %d", n, total-total/100)
			}
			if n := g.value(t, "select count(*) from effect"); n != total-total/100 {
				t.Errorf("%d effects", n)
			}
			if n := g.value(t, "select count(*) from dead_message"); n != total/100 {
				t.Errorf("%d dead letters, want %d", n, total/100)
			}
			lane := map[consumer.Order]string{consumer.PartitionOrder: "part", consumer.KeyOrder: "key",
				consumer.Unordered: "id"}[order]
			if n := g.value(t, "select count(*) from (select place < lag(place) over (partition by "+lane+
				" order by n) as back from effect) e where back"); n != 0 {
				t.Errorf("%d effects out of their order", n)
			}
			t.Logf("%d transactions for %d records", g.value(t, "select count(distinct xmin::text) from processed_event"), total)
		})
	}
}

// Messages that wait behind one that failed do not hold up a stop, and are neither failed nor lost.
func TestStopBehindAFailedMessageOfATrain(t *testing.T) {
	t.Parallel()
	g := newGrouped(t, consumer.PartitionOrder, 1, 100)
	failing := true
	failed := make(chan struct{}, 1000)
	handle := func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if msg.Offset == 30 && failing {
			select {
			case failed <- struct{}{}:
			default:
			}
			return consumer.RetryAfter(time.Hour, errOfMessage)
		}
		_, err := tx.Exec(ctx, "insert into effect (part, place, key, id) values ($1, $2, '', $3)", msg.Partition, msg.Offset,
			msg.EventID)
		return err
	}
	cfg := g.config(handle)
	cfg.DrainTimeout = time.Minute
	took := g.run(t, cfg, func() bool { return len(failed) > 0 && g.value(t, "select count(*) from effect") == 30 })
	if took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if n := len(failed); n != 1 {
		t.Errorf("the message that is parked for an hour was tried %d times", n)
	}
	failing = false
	g.run(t, cfg, func() bool { return g.value(t, "select count(*) from effect") == 100 })
	if n := g.value(t, "select count(*) from (select place < lag(place) over (order by n) as back from effect) e where back"); n != 0 {
		t.Errorf("%d effects out of their order", n)
	}
	if n := g.value(t, "select count(*) from dead_message"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
