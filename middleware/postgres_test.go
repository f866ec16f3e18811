package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// The links that make attempts, around Dedup on PostgreSQL: what a failed attempt wrote is gone, the next one has a
// transaction of its own, and the effect is there once.
func TestAttemptsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	exec := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	if err := errors.Join(schema.Postgres.Apply(t.Context(), exec, nil, schema.Dedup),
		exec(t.Context(), "create table charge (event text, cents int)")); err != nil {
		t.Fatal(err)
	}
	type order struct{ Cents int }
	charge := func(ctx context.Context, tx pgx.Tx, o order) error {
		key, _ := dedupstore.KeyFrom(ctx)
		_, err := tx.Exec(ctx, "insert into charge values ($1, $2)", key.Event, o.Cents)
		return err
	}
	const good = `{"cents": 7}`
	for _, test := range []struct {
		name    string
		fail    func(ctx context.Context, tx pgx.Tx) error // in the first attempt, after the charge
		value   string
		id      string
		steps   string // what the attempts came to, until the message is done or stays open
		wraps   error
		charges int
		timeout time.Duration // default a minute
	}{
		{name: "success", steps: "ok", charges: 1},
		{name: "error", fail: func(context.Context, pgx.Tx) error { return errBase }, steps: "retry ok", charges: 1},
		{
			name: "failed statement", steps: "retry ok", charges: 1,
			fail: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1/0"); return err },
		},
		{
			name: "failed statement, swallowed", steps: "retry ok", charges: 1,
			fail: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil },
		},
		{name: "panic", fail: func(context.Context, pgx.Tx) error { panic("boom") }, steps: "retry ok", charges: 1},
		{
			name: "time-out", steps: "retry ok", charges: 1, timeout: time.Second,
			fail: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select pg_sleep(60)"); return err },
		},
		{
			name: "time-out, swallowed", steps: "retry ok", charges: 1, timeout: time.Second,
			fail: func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return nil },
		},
		{
			name: "commit of its own", steps: "permanent", wraps: dedupstore.ErrTxEnded,
			fail: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		},
		{
			name: "rollback of its own", steps: "permanent", wraps: dedupstore.ErrTxEnded,
			fail: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "rollback"); return err },
		},
		{name: "not JSON", value: `{"cents": "s3cret"`, steps: "permanent"},
		{name: "tombstone", value: "-", steps: "permanent", wraps: consumer.ErrTombstone},
		{name: "id of 1 MB", id: strings.Repeat("x", 1<<20), steps: "permanent", wraps: dedupstore.ErrInvalidKey},
		{name: "id with NUL", id: "a\x00b", steps: "permanent", wraps: dedupstore.ErrInvalidKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			attempt := 0
			chain := compose(
				middleware.Dedup(pgxstore.New(pool, nil), consumer.JSONTx(func(ctx context.Context, tx pgx.Tx, o order) error {
					attempt++
					if err := charge(ctx, tx, o); err != nil || attempt > 1 || test.fail == nil {
						return err
					}
					return test.fail(ctx, tx)
				}), nil),
				middleware.Retry(3, nil), middleware.Recover(), middleware.Timeout(cmp.Or(test.timeout, time.Minute)),
			)
			if err := check(t, chainEnd(pool)); err != nil {
				t.Fatal(err)
			}
			newMessage := func() *consumer.Message {
				msg := message()
				msg.EventID, msg.Value = t.Name(), []byte(good)
				switch {
				case test.value == "-":
					msg.Value = nil
				case test.value != "":
					msg.Value = []byte(test.value)
				}
				if test.id != "" {
					msg.EventID = test.id
				}
				return msg
			}
			steps, err := deliver(t.Context(), chain, newMessage())
			if steps != test.steps || test.wraps != nil && !errors.Is(err, test.wraps) {
				t.Errorf("attempts: %s, %v; want %s", steps, err, test.steps)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 500) {
				t.Errorf("the error shows the message, or is too long: %.600q", err)
			}
			if test.charges == 1 {
				again := newMessage()
				if steps, err := deliver(t.Context(), chain, again); steps != "ok" || !again.Result.Duplicate {
					t.Errorf("redelivery: %s, %v, duplicate %v", steps, err, again.Result.Duplicate)
				}
			}
			if test.id != "" {
				return // cannot be looked for
			}
			var charges, records int
			err = pool.QueryRow(t.Context(),
				"select (select count(*) from charge where event = $1), (select count(*) from processed_event where event_id = $1)",
				t.Name()).
				Scan(&charges, &records)
			if err != nil || charges != test.charges || records != test.charges {
				t.Errorf("%d charges, %d records (%v), want %d of each", charges, records, err, test.charges)
			}
		})
	}
}

// chainEnd is a Dedup to be asked for its Check.
func chainEnd(pool *pgxpool.Pool) consumer.Handler {
	return middleware.Dedup(pgxstore.New(pool, nil), func(context.Context, pgx.Tx, *consumer.Message) error { return nil },
		nil)
}

// deliver makes attempts as the runner does, without the pauses, and returns what they came to.
func deliver(ctx context.Context, chain consumer.Handler, msg *consumer.Message) (steps string, err error) {
	for msg.Attempt = 1; ; msg.Attempt++ {
		msg.Result = consumer.Result{}
		err = chain.Handle(ctx, msg)
		steps = strings.TrimSpace(fmt.Sprint(steps, " ", kind(err)))
		if kind(err) != "retry" {
			return steps, err
		}
	}
}

func TestDedupCheckOnPostgreSQL(t *testing.T) {
	t.Parallel()
	if err := check(t, chainEnd(serverstest.Pool(t))); err == nil || !strings.Contains(err.Error(), "processed_event") {
		t.Errorf("without the table: %v", err)
	}
}
