package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/middleware/handlertest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// nowhere is a broker for services whose handlers are tested: nobody connects to it.
var nowhere = []string{"127.0.0.1:1"}

// idleService is a service that does not run.
func idleService(t testing.TB) *service {
	t.Helper()
	s := testService(t, nowhere, nil)
	t.Cleanup(func() {
		if err := s.close(nil); err != nil {
			t.Error(err)
		}
	})
	return s
}

// rows are the values of a query's only column, in their order.
func rows(t testing.TB, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	list, err := readRows(t.Context(), pool, query)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readRows(ctx context.Context, pool *pgxpool.Pool, query string) ([]string, error) {
	found, err := pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[string])
}

// TestCharge delivers messages to the service's own chain.
func TestCharge(t *testing.T) {
	t.Parallel()
	s := idleService(t)
	chains := consumertest.New(t, s.consumerConfig(), nil)
	msg := consumertest.JSON(s.cfg.ordersTopic, "e1", order{ID: "A-1", Reference: "r", Cents: 1250})
	for range 2 { // the second one is a redelivery
		if out := chains.Deliver(t.Context(), msg); out.Err != nil {
			t.Fatal(out)
		}
	}
	if got := rows(t, s.db.pool, "select order_id || ' ' || cents from charge"); len(got) != 1 || got[0] != "A-1 1250" {
		t.Errorf("charged: %q", got)
	}
	got := rows(t, s.db.pool, "select topic || ' ' || convert_from(payload, 'UTF8') from outbox_event")
	if len(got) != 1 || got[0] != `payments.charged {"order_id":"A-1","cents":1250}` {
		t.Errorf("events: %q", got)
	}
}

// TestMessageThatCannotBeRead has it in the table of dead letters, out of the way of those behind it.
func TestMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := idleService(t)
	chains := consumertest.New(t, s.consumerConfig(), nil)
	for id, value := range map[string]string{"e1": "no json", "e2": `{"order_id": "A-1"}`} {
		out := chains.Deliver(t.Context(), consumertest.Message(s.cfg.ordersTopic, id, []byte(value)))
		if out.End != consumertest.Done {
			t.Fatal(out)
		}
	}
	if got := rows(t, s.db.pool, "select event_id from dead_message order by event_id"); len(got) != 2 {
		t.Errorf("dead letters: %q", got)
	}
	if got := rows(t, s.db.pool, "select order_id from charge"); len(got) != 0 {
		t.Errorf("charged: %q", got)
	}
}

// TestChargeOnce delivers a message again after each step at which a transaction can fail.
func TestChargeOnce(t *testing.T) {
	t.Parallel()
	handlertest.Run(t, func(t testing.TB) handlertest.Harness[pgx.Tx] {
		pool, err := pgxpool.New(t.Context(), testDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		c := charges{events: pgxoutbox.NewWriter(nil), topic: "payments.charged"}
		return handlertest.Harness[pgx.Tx]{
			Store: pgxstore.New(pool, nil),
			Handler: func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
				return middleware.Dedup(store, consumer.JSONTx(c.charge), nil)
			},
			Messages: []*consumer.Message{
				consumertest.JSON("orders.confirmed", "e1", order{ID: "A-1", Reference: "r", Cents: 1250}),
				consumertest.JSON("orders.confirmed", "e2", order{ID: "A-2", Reference: "r", Cents: 700}),
			},
			Effects: func(ctx context.Context) ([]string, error) {
				return readRows(ctx, pool, `select 'charge ' || order_id from charge
					union all select 'event ' || convert_from(payload, 'UTF8') from outbox_event`)
			},
		}
	})
}
