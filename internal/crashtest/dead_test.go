package crashtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// mortal makes a topic in which one event fails for good. The striker stands around its dead letter, in which an effect
// is written too, so that the world's watchers see to it as to any other.
func (c *child) mortal(pool *pgxpool.Pool, t *consumer.Topic) {
	table := pgxdeadletter.New(pool, nil)
	write := deadletter.WriterFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, rec *deadletter.Record) error {
		if err := errors.Join(table.Write(ctx, tx, rec), takeEffect(ctx, tx, rec.Message(), c.Name)); err != nil {
			return err
		}
		c.at(inHandler)
		return nil
	})
	plain := pgxstore.New(pool, nil)
	t.Middleware = append([]consumer.Middleware{middleware.DeadLetter(store{plain, &c.striker}, write, nil)},
		t.Middleware...)
	t.Handler = middleware.Dedup(plain, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if msg.EventID == c.Event {
			return consumer.Permanent(errors.Join(takeEffect(ctx, tx, msg, "nobody"), errors.New("no attempt will help")))
		}
		return c.handle(ctx, tx, msg)
	}, nil)
}

// A process is killed at each step of a dead letter, and another one goes on: it is written once, or the message comes
// again.
func TestDeadLetterKilledAt(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.exec(schema.Postgres.SQL(nil, schema.DeadLetter))
				w.produceMany(inAll)
				o := w.struckAt(s.step)
				o.Dead = true
				first := start(t, o)
				w.awaitStrike(first, s.step, s.tx)
				w.awaitNoSession(first.Name)
				w.wantAfterDeath(s.step, s.done)
				o = w.member("second")
				o.Dead, o.Event = true, event5
				w.finish(first, start(t, o), s.step, s.done)
				if n := query[int](w, "select count(*) from dead_message where event_id = $1 and kafka_offset = $2", event5,
					strikeAt); n != 1 || n != query[int](w, "select count(*) from dead_message") {
					t.Errorf("%d dead letters of the event, want 1", n)
				}
			})
		})
	}
}

// struckRedrive is a store and a table with a striker in them.
type struckRedrive struct {
	*pgxstore.Store
	*pgxdeadletter.Table
	*striker
}

func (s struckRedrive) InTx(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	s.inStore.Store(true)
	defer s.inStore.Store(false)
	s.at(beforeBegin)
	err := s.Store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		s.at(afterHandler)
		return nil
	})
	if err == nil {
		s.at(afterCommit)
	}
	return err
}

func (s struckRedrive) Take(ctx context.Context, tx pgx.Tx, id int64) (*deadletter.Record, error) {
	rec, err := s.Table.Take(ctx, tx, id)
	if err == nil {
		s.at(afterRecord)
	}
	return rec, err
}

// Check settles which of the two is meant.
func (s struckRedrive) Check(ctx context.Context) error { return s.Table.Check(ctx) }

// redrive is the work of a process that redrives.
func (c *child) redrive(ctx context.Context) error {
	pool, err := c.openPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	struck := struckRedrive{pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil), &c.striker}
	_, err = deadletter.Redrive(ctx, struck, struck, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if err := takeEffect(ctx, tx, msg, c.Name); err != nil {
			return err
		}
		c.at(inHandler)
		return nil
	}, &deadletter.RedriveConfig{Filter: deadletter.Filter{Consumer: redriven}, PerSecond: -1})
	return err
}

const redriven = "billing/orders"

// redriveSteps are the steps of a redrive, and whether its effect is there when the process is gone.
var redriveSteps = []struct {
	step step
	done int
}{
	{beforeBegin, 0}, {afterRecord, 0}, {inHandler, 0}, {afterHandler, 0}, {commitUnsent, 0}, {commitSent, 1},
	{commitAnswered, 1}, {afterCommit, 1},
}

// A process that redrives is killed at each step, another one begins anew, and so does a third, which finds nothing to
// do.
func TestRedriveKilledAt(t *testing.T) {
	t.Parallel()
	for _, s := range redriveSteps {
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			const dead = 5
			w := newGraveyard(t, dead)
			o := w.member("first")
			o.Redrive, o.Step = true, s.step
			first := start(t, o)
			first.Await(sayAt + string(s.step))
			first.Tell(hearDie)
			first.AwaitKilled()
			w.awaitNoSession(first.Name)
			if effects, left := w.counts(); effects != s.done || left != dead-s.done {
				t.Errorf("after the kill: %d effects, %d dead letters; want %d and %d", effects, left, s.done, dead-s.done)
			}
			for _, name := range []string{"second", "third"} {
				o := w.member(name)
				o.Redrive = true
				next := start(t, o)
				next.AwaitEnd()
				if effects, left := w.counts(); effects != dead || left != 0 || !next.Cmd.ProcessState.Success() {
					t.Errorf("after the %s: %d effects, %d dead letters, %v", name, effects, left, next.Cmd.ProcessState)
				}
			}
			if distinct := query[int](w, "select count(distinct event) from effect"); distinct != dead {
				t.Errorf("%d events have taken effect, want %d", distinct, dead)
			}
			if n := query[int](w, "select count(*) from processed_event"); n != dead {
				t.Errorf("%d records, want %d", n, dead)
			}
		})
	}
}

// newGraveyard is a world without a topic, in which messages are dead.
func newGraveyard(t *testing.T, n int) *world {
	t.Helper()
	w := &world{t: t, id: strings.ToLower(t.Name()[len(t.Name())-1:]) + time.Now().Format("150405.000000"),
		database: serverstest.DatabaseURL(t), b: &serverstest.Broker{}}
	pool, err := pgxpool.New(t.Context(), w.database)
	must(t, err)
	t.Cleanup(pool.Close)
	w.pool = pool
	w.exec(schema.Postgres.SQL(nil) + effectTable)
	table, s := pgxdeadletter.New(pool, nil), pgxstore.New(pool, nil)
	for i := range n {
		msg := &consumer.Message{Topic: "orders", Offset: int64(i),
			Headers: []consumer.Header{{Key: consumer.DefaultEventIDHeader, Value: []byte{'e', byte('0' + i)}}}}
		rec := deadletter.NewRecord(msg, dedupstore.Key{Consumer: redriven, Event: eventOf(msg)})
		rec.Kind = deadletter.KindGaveUp
		_, err := s.Once(t.Context(), rec.DedupKey(),
			func(ctx context.Context, tx pgx.Tx) error { return table.Write(ctx, tx, rec) })
		must(t, err)
	}
	return w
}

func (w *world) counts() (effects, dead int) {
	w.t.Helper()
	return query[int](w, "select count(*) from effect"), query[int](w, "select count(*) from dead_message")
}
