package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// history is what is known from outside about messages of random members: what was produced, and what a reader of the
// database sees.
type history struct {
	pool   *pgxpool.Pool
	broker *serverstest.Broker
	group  string
	topic  string
	order  consumer.Order
	lanes  map[string][]string // the ids of each lane, in their order
	fates  map[string]fate
	rand   *rand.Rand

	mu       sync.Mutex
	attempts map[string]int
	wrong    []string // errors of messages that nothing is wrong with
}

// fate is what becomes of a message.
type fate int

const (
	fine       fate = iota
	fails           // once, after its effect was written
	panics          // once
	turnedAway      // once, before the store
	rejected        // for good: it gets a dead letter
)

const (
	historyMessages = 600
	historyHot      = 3 // keys that have half of the messages
)

const insertEffect = "insert into effect (lane, id) values ($1, $2)"

// grouping makes the handlers of a history, whose messages share transactions by the store. Each calls script, and
// writes its effect.
type grouping struct {
	name string
	open func(t *testing.T, h *history) consumer.Handler
}

type effect struct{ lane, id string }

var groupings = []grouping{
	{"pgx", func(_ *testing.T, h *history) consumer.Handler {
		return scripted(h, pgxstore.New(h.pool, &pgxstore.Config{Group: 40}),
			func(ctx context.Context, tx pgx.Tx, e effect) error {
				_, err := tx.Exec(ctx, insertEffect, e.lane, e.id)
				return err
			})
	}},
	{"batch", func(_ *testing.T, h *history) consumer.Handler {
		return scripted(h, pgxstore.NewBatch(h.pool, &pgxstore.Config{Group: 40}),
			func(_ context.Context, b *pgx.Batch, e effect) error {
				b.Queue(insertEffect, e.lane, e.id)
				return nil
			})
	}},
	{"rows", func(_ *testing.T, h *history) consumer.Handler {
		copied := func(ctx context.Context, tx pgx.Tx, rows []effect) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"lane", "id"},
				pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
					return []any{rows[i].lane, rows[i].id}, nil
				}))
			return err
		}
		return scripted(h, pgxstore.NewRows(h.pool, &pgxstore.Config{Group: 40}, copied),
			func(_ context.Context, rows *dedupstore.Rows[effect], e effect) error {
				rows.Add(e)
				return nil
			})
	}},
	{"sql", func(t *testing.T, h *history) consumer.Handler {
		t.Helper()
		return scripted(h, sqlstore.New(h.sqlDB(t), schema.Postgres, &sqlstore.Config{Group: 40}),
			func(ctx context.Context, tx *sql.Tx, e effect) error {
				_, err := tx.ExecContext(ctx, insertEffect, e.lane, e.id)
				return err
			})
	}},
	{"bun", func(t *testing.T, h *history) consumer.Handler {
		t.Helper()
		db := bun.NewDB(h.sqlDB(t), pgdialect.New())
		return scripted(h, bunstore.New(db, &sqlstore.Config{Group: 40}),
			func(ctx context.Context, tx bun.Tx, e effect) error {
				_, err := tx.ExecContext(ctx, "insert into effect (lane, id) values (?, ?)", e.lane, e.id)
				return err
			})
	}},
}

func scripted[Tx any](h *history, store dedupstore.Store[Tx],
	write func(context.Context, Tx, effect) error) consumer.Handler {
	return middleware.Dedup(store, func(ctx context.Context, tx Tx, msg *consumer.Message) error {
		if err := write(ctx, tx, effect{h.lane(msg), msg.EventID}); err != nil {
			return err
		}
		return h.play(msg.EventID)
	}, nil)
}

func (h *history) sqlDB(t *testing.T) *sql.DB {
	t.Helper()
	cfg := h.pool.Config().ConnConfig.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // bun writes the values into the texts
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func newHistory(t *testing.T, b *serverstest.Broker, order consumer.Order, seed uint64) *history {
	t.Helper()
	h := &history{
		pool: serverstest.Pool(t), broker: b, group: serverstest.Group(t), order: order, rand: rand.New(rand.NewPCG(seed, 0)),
		lanes: map[string][]string{}, fates: map[string]fate{}, attempts: map[string]int{},
	}
	exec := func(ctx context.Context, sql string) error {
		_, err := h.pool.Exec(ctx, sql)
		return err
	}
	if err := errors.Join(
		schema.Postgres.Apply(t.Context(), exec, nil, schema.Dedup, schema.DeadLetter),
		exec(t.Context(), "create table effect (n bigint generated always as identity, lane text, id text)"),
	); err != nil {
		t.Fatal(err)
	}
	const partitions = 3
	h.topic = b.Topic(t, partitions)
	var msgs []*sarama.ProducerMessage
	for i := range historyMessages {
		key := fmt.Sprint("key-", i%historyHot)
		if h.rand.IntN(2) == 0 {
			key = fmt.Sprint("key-", h.rand.IntN(100))
		}
		var n int
		for _, c := range key {
			n = 31*n + int(c)
		}
		p := int32(n % partitions)
		id := fmt.Sprint("event-", i)
		switch dice := h.rand.IntN(100); {
		case dice < 4:
			h.fates[id] = fails
		case dice < 5:
			h.fates[id] = panics
		case dice < 7:
			h.fates[id] = turnedAway
		case dice < 9:
			h.fates[id] = rejected
		}
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: h.topic, Partition: p, Key: sarama.StringEncoder(key),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
		})
		lane := h.laneOf(p, key)
		h.lanes[lane] = append(h.lanes[lane], id)
	}
	b.Produce(t, msgs...)
	return h
}

func (h *history) laneOf(partition int32, key string) string {
	if h.order == consumer.PartitionOrder {
		return fmt.Sprint(partition)
	}
	return key
}

func (h *history) lane(msg *consumer.Message) string { return h.laneOf(msg.Partition, string(msg.Key)) }

func (h *history) play(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[id]++
	switch fate := h.fates[id]; {
	case fate == rejected:
		return consumer.Permanent(errOfMessage)
	case fate == fails && h.attempts[id] == 1:
		return errOfMessage
	case fate == panics && h.attempts[id] == 1:
		panic("this message panics")
	}
	return nil
}

// watched is the link outside of the store: messages that nothing is wrong with never fail there, and are never tried
// twice by one member.
func (h *history) watched(next consumer.Handler) consumer.Handler {
	before := sync.Map{}
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if h.fates[msg.EventID] == turnedAway {
			if _, again := before.LoadOrStore(msg.EventID, true); !again {
				return errOfMessage
			}
		}
		err := next.Handle(ctx, msg)
		if fate := h.fates[msg.EventID]; (fate == fine || fate == turnedAway) &&
			(err != nil && ctx.Err() == nil || fate == fine && msg.Attempt > 1) {
			h.mu.Lock()
			h.wrong = append(h.wrong, fmt.Sprintf("%s of lane %s, attempt %d: %v", msg.EventID, h.lane(msg), msg.Attempt, err))
			h.mu.Unlock()
		}
		return err
	})
}

// member is one consumer.
func (h *history) member(ctx context.Context, handler consumer.Handler) error {
	log := slog.New(slog.DiscardHandler)
	plain := pgxstore.New(h.pool, nil)
	return consumer.Run(ctx, consumer.Config{
		Brokers: h.broker.Addrs, Group: h.group, Logger: log,
		Topics: map[string]consumer.Topic{h.topic: {
			Order: h.order,
			Middleware: []consumer.Middleware{
				middleware.DeadLetter(plain, pgxdeadletter.New(h.pool, nil), &middleware.DeadLetterConfig{Logger: log}),
				middleware.Retry(9, &middleware.RetryConfig{Base: 20 * time.Millisecond, Max: 50 * time.Millisecond}),
				h.watched, middleware.Recover(), middleware.Timeout(time.Minute),
			},
			Handler: handler,
		}},
	})
}

// seen is what one snapshot of the database shows.
type seen struct {
	records, dead map[string]bool
	effects       []effect
}

func (h *history) look(ctx context.Context) (s seen, err error) {
	s = seen{records: map[string]bool{}, dead: map[string]bool{}}
	err = pgx.BeginTxFunc(ctx, h.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			for into, query := range map[*map[string]bool]string{
				&s.records: "select event_id from processed_event", &s.dead: "select event_id from dead_message",
			} {
				rows, err := tx.Query(ctx, query)
				if err != nil {
					return err
				}
				ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					return err
				}
				for _, id := range ids {
					(*into)[id] = true
				}
			}
			rows, err := tx.Query(ctx, "select lane, id from effect order by n")
			if err != nil {
				return err
			}
			s.effects, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e effect, err error) {
				err = row.Scan(&e.lane, &e.id)
				return e, err
			})
			return err
		})
	return s, err
}

// check says what is wrong with what is seen: each record has its effect or dead letter, each of these its record, and
// what is done is a prefix of each lane, in its order.
func (h *history) check(s seen) (wrong []string) {
	done := map[string]bool{}
	byLane := map[string][]string{}
	for _, e := range s.effects {
		if done[e.id] {
			wrong = append(wrong, e.id+" took effect twice")
		}
		done[e.id] = true
		byLane[e.lane] = append(byLane[e.lane], e.id)
	}
	for id := range s.dead {
		if done[id] {
			wrong = append(wrong, id+" took effect and is dead")
		}
		if h.fates[id] != rejected {
			wrong = append(wrong, id+" is dead")
		}
		done[id] = true
	}
	for id := range done {
		if !s.records[id] {
			wrong = append(wrong, id+" has no record")
		}
	}
	for id := range s.records {
		if !done[id] {
			wrong = append(wrong, id+" has a record only")
		}
	}
	for lane, ids := range h.lanes {
		var want []string
		for _, id := range ids {
			if !done[id] {
				break
			}
			if !s.dead[id] {
				want = append(want, id)
			}
		}
		if !slices.Equal(byLane[lane], want) {
			wrong = append(wrong, fmt.Sprintf("lane %s: %v took effect, which is no prefix of it in its order", lane,
				byLane[lane]))
		}
	}
	return wrong
}

// Somebody who looks at the database at any moment sees of each lane a prefix that is done, each effect with its record
// and each record with its effect, while members come and go and messages fail; and messages that nothing is wrong with
// fail nowhere.
func TestHistories(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		for _, order := range []consumer.Order{consumer.KeyOrder, consumer.PartitionOrder} {
			for _, g := range groupings {
				t.Run(order.String()+"/"+g.name, func(t *testing.T) {
					t.Parallel()
					seed := rand.Uint64()
					t.Logf("seed %d", seed)
					h := newHistory(t, b, order, seed)
					h.comeAndGo(t, g)
				})
			}
		}
	})
}

func (h *history) comeAndGo(t *testing.T, g grouping) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var members sync.WaitGroup
	for i := range 2 {
		stays := rand.New(rand.NewPCG(h.rand.Uint64(), uint64(i)))
		handler := g.open(t, h)
		members.Go(func() {
			for ctx.Err() == nil {
				stay, gone := context.WithTimeout(ctx, time.Duration(800+stays.IntN(3000))*time.Millisecond)
				if err := h.member(stay, handler); err != nil {
					t.Error(err)
				}
				gone()
			}
		})
	}
	looks := 0
	for {
		s, err := h.look(ctx)
		if err != nil {
			t.Errorf("after %d looks: %v", looks, err)
			break
		}
		looks++
		if wrong := h.check(s); len(wrong) > 0 {
			t.Errorf("look %d: %s", looks, strings.Join(wrong[:min(len(wrong), 5)], "; "))
			break
		}
		if len(s.records) == historyMessages {
			break
		}
		time.Sleep(5 * time.Millisecond) // looks, not a wait
	}
	cancel()
	members.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.wrong) > 0 {
		t.Errorf("%d messages failed with which nothing is wrong: %s", len(h.wrong),
			strings.Join(h.wrong[:min(len(h.wrong), 5)], "; "))
	}
	var transactions int
	if err := h.pool.QueryRow(t.Context(),
		"select count(distinct xmin::text) from processed_event").Scan(&transactions); err != nil {
		t.Error(err)
	}
	t.Logf("%d looks, %d messages, %d transactions", looks, historyMessages, transactions)
}
