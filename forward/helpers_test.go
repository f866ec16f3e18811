package forward_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/bundeadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/bunoutbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 90 s: %s", what)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fixture is a schema with the tables in it, and effect (event text), in which nothing is unique.
type fixture struct {
	t    testing.TB
	url  string
	pool *pgxpool.Pool
}

func open(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, url: serverstest.DatabaseURL(t)}
	pool, err := pgxpool.New(t.Context(), f.url)
	must(t, err)
	t.Cleanup(pool.Close)
	f.pool = pool
	f.exec(schema.Postgres.SQL(nil) + "create table effect (event text not null)")
	return f
}

func (f *fixture) exec(text string) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), text); err != nil {
		f.t.Fatalf("%.100s: %v", text, err)
	}
}

func (f *fixture) count(query string) (n int) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.t.Context(), query).Scan(&n); err != nil {
		f.t.Fatalf("%.100s: %v", query, err)
	}
	return n
}

// want compares how many rows there are.
func (f *fixture) want(dead, records, events int) {
	f.t.Helper()
	d, r, e := f.count("select count(*) from dead_message"), f.count("select count(*) from processed_event"),
		f.count("select count(*) from outbox_event")
	if d != dead || r != records || e != events {
		f.t.Errorf("%d dead letters, %d records, %d events; want %d, %d, %d", d, r, e, dead, records, events)
	}
}

// events are those in the outbox.
func (f *fixture) events() (events []outbox.Event) {
	f.t.Helper()
	o := outbox.NewOperator(pgxoutbox.NewDatabase(f.pool), nil)
	list, err := o.List(f.t.Context(), outbox.Filter{})
	must(f.t, err)
	for _, row := range list {
		full, err := o.Show(f.t.Context(), row.Number)
		must(f.t, err)
		events = append(events, full.Event)
	}
	return events
}

// header is the last header of that name.
func header(e outbox.Event, name string) (value string) {
	for _, h := range e.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

// kit is what a driver's packages make of it.
type kit struct {
	bury    func(ctx context.Context, rec *deadletter.Record) error // writes a dead letter, with its record, to the table
	record  func(ctx context.Context, key dedupstore.Key) (ran bool, err error)
	topic   func(topic string, cfg *forward.DeadLettersConfig, after error) consumer.Middleware // DeadLetter to a topic, whose transaction after spoils
	checked func(topic string) consumer.Middleware                                              // DeadLetter to a topic, with nothing between
	redrive func(ctx context.Context, cfg *forward.RedriveConfig) (deadletter.Report, error)
	dedup   func(handle func(msg *consumer.Message) error) consumer.Handler // writes an effect
}

// store is what all drivers' stores can do.
type store[Tx any] interface {
	dedupstore.Store[Tx]
	forward.Store[Tx]
}

func kitOf[Tx any](s store[Tx], table deadletter.Table[Tx], events forward.Events[Tx],
	effect func(ctx context.Context, tx Tx, event string) error) *kit {
	return &kit{
		bury: func(ctx context.Context, rec *deadletter.Record) error {
			_, err := s.Once(ctx, rec.DedupKey(), func(ctx context.Context, tx Tx) error { return table.Write(ctx, tx, rec) })
			return err
		},
		record: func(ctx context.Context, key dedupstore.Key) (bool, error) {
			return s.Once(ctx, key, func(context.Context, Tx) error { return nil })
		},
		topic: func(topic string, cfg *forward.DeadLettersConfig, after error) consumer.Middleware {
			letters := forward.DeadLetters(events, topic, cfg)
			write := deadletter.WriterFunc[Tx](func(ctx context.Context, tx Tx, rec *deadletter.Record) error {
				if err := letters.Write(ctx, tx, rec); err != nil {
					return err
				}
				return after
			})
			return middleware.DeadLetter(s, write, &middleware.DeadLetterConfig{Logger: quiet()})
		},
		checked: func(topic string) consumer.Middleware {
			return middleware.DeadLetter(s, forward.DeadLetters(events, topic, nil),
				&middleware.DeadLetterConfig{Logger: quiet()})
		},
		redrive: func(ctx context.Context, cfg *forward.RedriveConfig) (deadletter.Report, error) {
			return forward.Redrive[Tx](ctx, s, table, events, cfg)
		},
		dedup: func(handle func(msg *consumer.Message) error) consumer.Handler {
			return middleware.Dedup(s, func(ctx context.Context, tx Tx, msg *consumer.Message) error {
				if err := effect(ctx, tx, msg.EventID); err != nil {
					return err
				}
				return handle(msg)
			}, nil)
		},
	}
}

const effectSQL = "insert into effect values ($1)"

// drivers are all ways to the database.
var drivers = map[string]func(f *fixture) *kit{
	"pgx": func(f *fixture) *kit {
		return kitOf[pgx.Tx](pgxstore.New(f.pool, nil), pgxdeadletter.New(f.pool, nil), pgxoutbox.NewWriter(nil),
			func(ctx context.Context, tx pgx.Tx, event string) error {
				_, err := tx.Exec(ctx, effectSQL, event)
				return err
			})
	},
	"sql": func(f *fixture) *kit {
		cfg, err := pgx.ParseConfig(f.url)
		must(f.t, err)
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // as the command has it
		db := stdlib.OpenDB(*cfg)
		f.t.Cleanup(func() { _ = db.Close() })
		return kitOf[*sql.Tx](sqlstore.New(db, schema.Postgres, nil), sqldeadletter.New(db, schema.Postgres, nil),
			sqloutbox.NewWriter(nil), func(ctx context.Context, tx *sql.Tx, event string) error {
				_, err := tx.ExecContext(ctx, effectSQL, event)
				return err
			})
	},
	"bun": func(f *fixture) *kit {
		db := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(f.url))), pgdialect.New())
		f.t.Cleanup(func() { _ = db.Close() })
		return kitOf[bun.Tx](bunstore.New(db, nil), bundeadletter.New(db, nil), bunoutbox.NewWriter(nil),
			func(ctx context.Context, tx bun.Tx, event string) error {
				_, err := tx.ExecContext(ctx, "insert into effect values (?)", event)
				return err
			})
	},
}

// eachDriver runs f with each of them.
func eachDriver(t *testing.T, f func(t *testing.T, f *fixture, k *kit)) {
	t.Helper()
	for name, kitFor := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			f(t, db, kitFor(db))
		})
	}
}

// message is one with all that a message can have, as far as the outbox takes it.
func message(offset int64) *consumer.Message {
	return &consumer.Message{
		Topic: "orders", Partition: 3, Offset: offset, TopicID: consumer.TopicID{1, 2, 3},
		Key: []byte("k\x00\xff"), Value: []byte{}, Timestamp: time.Date(2026, 11, 29, 12, 0, 0, 123e6, time.UTC),
		Headers: []consumer.Header{
			{Key: "event-id", Value: []byte("older")}, {Key: "raw", Value: []byte{0, 1, 0xff}}, {Key: "none"},
			{Key: "empty", Value: []byte{}},
			{Key: "event-id", Value: []byte(id(offset))}, {Key: "raw", Value: []byte("again")},
		},
		Group: "billing", Consumer: "billing/orders", EventID: id(offset), Attempt: 5,
		FirstAttempt: time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC),
	}
}

func id(offset int64) string { return fmt.Sprint("event-", offset) }

// deadOf is a dead letter of msg.
func deadOf(msg *consumer.Message, kind deadletter.Kind) *deadletter.Record {
	rec := deadletter.NewRecord(msg, dedupstore.Key{Consumer: msg.Consumer, Event: msg.EventID})
	rec.Kind, rec.ErrorType, rec.Error = kind, "23505", "no good"
	return rec
}
