package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// ofUUIDs is a database whose records are partitioned by UUIDv7 of 2020, as text or as uuid.
func ofUUIDs(t *testing.T, idType string) *pgxpool.Pool {
	t.Helper()
	pool := serverstest.Pool(t)
	for _, sql := range []string{
		`create table processed_event (event_id ` + idType + ` not null, consumer_id text collate "C" not null, processed_at timestamptz not null default clock_timestamp(),
			duplicates integer not null default 0, primary key (event_id, consumer_id)) partition by range (event_id)`,
		// as of 2020-01-01 and 2021-01-01; the store's probe needs a partition of now
		`create table of2020 partition of processed_event for values from ('016f5e66-e800-0000-0000-000000000000') to ('0176bb3e-7000-0000-0000-000000000000')`,
		`create table later partition of processed_event for values from ('0176bb3e-7000-0000-0000-000000000000') to ('0bad0000-0000-0000-0000-000000000000')`,
		schema.Postgres.SQL(nil, schema.DeadLetter),
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// A dead letter without an event's id has a key that such a table takes: a UUIDv7 of the message's time, the same at
// each delivery.
func TestDeadLetterWithoutIDInATableOfUUIDs(t *testing.T) {
	t.Parallel()
	for _, idType := range []string{"uuid", `text collate "C"`} {
		t.Run(idType, func(t *testing.T) {
			t.Parallel()
			pool := ofUUIDs(t, idType)
			store, dead := pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil)
			topic := consumer.Topic{
				Handler:    middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, nil),
				Middleware: []consumer.Middleware{middleware.DeadLetter(store, dead, nil)},
			}
			msg := consumertest.Message("orders", "", []byte("planted"))
			msg.Headers, msg.Offset, msg.Timestamp = nil, 42, time.Date(2020, 3, 4, 5, 6, 7, 0, time.UTC)
			for i, want := range []consumer.Result{{Dead: true}, {Duplicate: true}} {
				if out := consumertest.Run(t, topic, msg); out.Err != nil || out.Result.Dead != want.Dead ||
					out.Result.Duplicate != want.Duplicate {
					t.Errorf("delivery %d: %v", i+1, out)
				}
			}
			msg.Offset = 43
			if out := consumertest.Run(t, topic, msg); out.Err != nil || !out.Result.Dead {
				t.Errorf("the next message: %v", out)
			}
			list, err := dead.List(t.Context(), deadletter.Filter{}, 0, 10)
			if err != nil || len(list) != 2 {
				t.Fatalf("%v, %d dead letters", err, len(list))
			}
			if id := list[0].Event; !strings.HasPrefix(id, "0170a3ef-") || len(id) != 36 || id[14] != '7' ||
				id == list[1].Event {
				t.Errorf("the keys are %s and %s", id, list[1].Event)
			}
			var n int
			if err := pool.QueryRow(t.Context(), "select count(*) from of2020").Scan(&n); err != nil || n != 2 {
				t.Errorf("%v: %d records are in the partition of their time", err, n)
			}
		})
	}
}

// Where not even that finds a partition, the message stays, and the log says why and what to do; and it is buried once
// there is one.
func TestDeadLetterThatNoPartitionTakes(t *testing.T) {
	t.Parallel()
	pool := ofUUIDs(t, "uuid")
	store := pgxstore.New(pool, nil)
	var log bytes.Buffer
	chain := middleware.DeadLetter(store, pgxdeadletter.New(pool, nil),
		&middleware.DeadLetterConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})(
		middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, nil))
	msg := &consumer.Message{Topic: "orders", Offset: 42, Value: []byte("planted"), Consumer: "billing/orders",
		EventIDErr: consumer.ErrNoEventID}
	handle := func() error {
		msg.Result = consumer.Result{}
		return chain.Handle(t.Context(), msg)
	}
	stays := func(err error, says string) {
		t.Helper()
		if _, again := consumer.Delay(err); !again || msg.Result.Dead || !errors.Is(err, consumer.ErrNoEventID) {
			t.Errorf("%v, %+v: want that it stays", err, msg.Result)
		}
		if text := log.String(); says != "" && !strings.Contains(text, says) ||
			!strings.Contains(text, "create the partition of that time") || strings.Contains(text, "planted") {
			t.Errorf("the log: %s", text)
		}
	}
	stays(handle(), "it has no time") // the log says more only once a minute
	msg.Timestamp = time.Date(2019, 3, 4, 5, 6, 7, 0, time.UTC)
	stays(handle(), "")
	if _, err := pool.Exec(t.Context(),
		`create table of2019 partition of processed_event for values from ('016806b5-bc00-0000-0000-000000000000') to ('016f5e66-e800-0000-0000-000000000000')`); err != nil {
		t.Fatal(err)
	}
	if err := handle(); err != nil || !msg.Result.Dead {
		t.Errorf("with its partition: %v, %+v", err, msg.Result)
	}
}
