package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

// world is a table, a topic, and what a test knows of them.
type world struct {
	t      testing.TB
	b      *serverstest.Broker
	mode   outbox.Mode
	url    string
	pool   *pgxpool.Pool
	topic  string
	writer *pgxoutbox.Writer

	mu      sync.Mutex
	keys    [keyCount]sync.Mutex
	order   map[string][]string // committed, by key
	rolled  map[string]bool     // rolled back
	started int
}

const keyCount = 10

func newWorld(t testing.TB, b *serverstest.Broker, mode outbox.Mode) *world {
	t.Helper()
	w := &world{t: t, b: b, mode: mode, url: serverstest.DatabaseURL(t), topic: b.Topic(t, 3),
		writer: pgxoutbox.NewWriter(nil), order: map[string][]string{}, rolled: map[string]bool{}}
	pool, err := pgxpool.New(context.Background(), w.url)
	must(t, err)
	t.Cleanup(pool.Close)
	w.pool = pool
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil, schema.Outbox))
	return w
}

var errRollBack = errors.New("roll back")

// write writes events of random keys, one or some in a transaction, of which one in ten is rolled back.
func (w *world) write(n int) {
	w.t.Helper()
	for n > 0 {
		k := rand.IntN(keyCount)
		key := fmt.Sprint("key ", k)
		var ids []string
		var events []outbox.Event
		for range 1 + rand.IntN(3) {
			id := outbox.NewID()
			ids = append(ids, id)
			events = append(events, outbox.Event{ID: id, Topic: w.topic, Key: []byte(key),
				Value: []byte("some hundred bytes would be usual, these are fewer")})
		}
		n -= len(ids)
		back := rand.IntN(10) == 0
		w.keys[k].Lock()
		err := pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error {
			if err := w.writer.Write(w.t.Context(), tx, events...); err != nil {
				return err
			}
			if back {
				return errRollBack
			}
			return nil
		})
		w.mu.Lock()
		switch {
		case back && errors.Is(err, errRollBack):
			for _, id := range ids {
				w.rolled[id] = true
			}
		case err == nil:
			w.order[key] = append(w.order[key], ids...)
		default:
			w.t.Error(err)
		}
		w.mu.Unlock()
		w.keys[k].Unlock()
	}
}

// relay returns what a relay is told.
func (w *world) relay() orders {
	w.started++
	return orders{Name: fmt.Sprintf("relay-%d-%s", w.started, w.topic[len(w.topic)-8:]), Database: w.url,
		Brokers: w.b.Addrs, Mode: w.mode, Rows: 100, Workers: 2}
}

func (w *world) value(sql string, args ...any) int {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), sql, args...)
	must(w.t, err)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	must(w.t, err)
	return n
}

func (w *world) rows() int { return w.value("select count(*) from outbox_event") }

// awaitClean waits until the table is empty.
func (w *world) awaitClean() {
	w.t.Helper()
	childtest.Eventually(w.t, "the table is clean", func() bool { return w.rows() == 0 })
}

// check looks at the topic: every committed event at least once, none that was rolled back, and the first copies of
// each key in order. It returns how many records were repetitions.
func (w *world) check() (repeated int) {
	w.t.Helper()
	list, err := outboxtest.Records(w.b.Addrs, w.topic)
	must(w.t, err)
	got, repeated := outboxtest.FirstCopies(list)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, want := range w.order {
		if !slices.Equal(got[key], want) {
			w.t.Errorf("%s: %s", key, difference(got[key], want))
		}
	}
	for _, ids := range got {
		for _, id := range ids {
			if w.rolled[id] {
				w.t.Errorf("%s was rolled back, and is in the topic", id)
			}
		}
	}
	return repeated
}

func difference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("event %d of %d is %s, want %s (%d in the topic)", i, len(want), got[i], want[i], len(got))
		}
	}
	return fmt.Sprintf("%d events are in the topic, want %d", len(got), len(want))
}
