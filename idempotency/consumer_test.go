package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

type order struct{ ID string }

// service is a process of a service that charges orders at a provider: what it keeps in memory ends with it.
type service struct {
	client *http.Client
	url    string
	after  func() error // what the handler does behind the call
}

// charge writes and calls.
func (s *service) charge(ctx context.Context, tx pgx.Tx, o order) error {
	if _, err := tx.Exec(ctx, "insert into charge values ($1)", o.ID); err != nil {
		return err
	}
	key, err := idempotency.KeyFor(ctx, "charge")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(idempotency.WithKey(ctx, key), http.MethodPost, s.url, strings.NewReader(o.ID))
	if err != nil {
		return err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return fmt.Errorf("the provider answered %s", res.Status)
	}
	if s.after != nil {
		return s.after()
	}
	return nil
}

// start is a new process: nothing but the database is as before.
func start(t *testing.T, pool *pgxpool.Pool, s *service) *consumertest.Chains {
	t.Helper()
	s.client = clientOf(t, quick())
	store := pgxstore.New(pool, nil)
	return consumertest.New(t, consumer.Config{Group: "billing", Topics: map[string]consumer.Topic{"orders": {
		Middleware: []consumer.Middleware{
			middleware.DeadLetter(store, pgxdeadletter.New(pool, nil), nil), middleware.Retry(3, nil), middleware.Recover(),
		},
		Handler: middleware.Dedup(store, consumer.JSONTx(s.charge), nil),
	}}}, nil)
}

// However often an event is handled and by whom, the call has one key, and takes effect once.
func TestTheKeyOfAnEventStaysTheSame(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(schema.Postgres.SQL(nil))
	exec("create table charge (order_id text)")
	provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{Script: []idempotencytest.Fault{idempotencytest.DropAfter}})
	s := &service{url: serve(t, provider)}
	msg := consumertest.JSON("orders", "event-1", order{ID: "order-1"})
	want := idempotency.Key("billing/orders", "event-1", "charge")
	total := 0
	check := func(step string, calls, charges int) {
		t.Helper()
		got := provider.Calls()
		for _, call := range got[total:] {
			if call.Key != want {
				t.Errorf("%s: the key is %q, want %q", step, call.Key, want)
			}
		}
		if n := len(got) - total; n != calls {
			t.Errorf("%s: %d calls, want %d", step, n, calls)
		}
		total = len(got)
		var rows int
		if err := pool.QueryRow(t.Context(), "select count(*) from charge").Scan(&rows); err != nil || rows != charges {
			t.Errorf("%s: %d rows in charge, %v, want %d", step, rows, err, charges)
		}
		if effects := provider.Effects(); !maps.Equal(effects, map[string]int{want: 1}) {
			t.Errorf("%s: the provider has charged %v, want once", step, effects)
		}
	}

	// the drain ends behind the call: the transaction is rolled back, the call stays
	ctx, cancel := context.WithCancel(t.Context())
	s.after = func() error { cancel(); return nil }
	if out := start(t, pool, s).Deliver(ctx, msg); out.End != consumertest.Cancelled {
		t.Fatal(out)
	}
	check("first delivery", 2, 0) // the provider dropped the first answer

	// another process gets the event, fails three times, and gives up
	s.after = func() error { return errors.New("fails behind the call") }
	if out := start(t, pool, s).Deliver(t.Context(), msg); !out.Result.Dead {
		t.Fatal(out)
	}
	check("restart, redelivery", 3, 0)

	// an operator redrives the dead letter
	s.after = nil
	report, err := deadletter.Redrive(t.Context(), pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil),
		consumer.JSONTx(s.charge),
		&deadletter.RedriveConfig{Filter: deadletter.Filter{Consumer: "billing/orders"}})
	if err != nil || report.Redriven != 1 {
		t.Fatalf("redrive: %+v, %v", report, err)
	}
	check("redrive", 1, 1)

	// the topic is replayed: the event is known
	if out := start(t, pool, s).Deliver(t.Context(), msg); !out.Result.Duplicate {
		t.Fatal(out)
	}
	check("replay", 0, 1)

	// the database lost it all, and the topic is replayed
	exec("truncate charge, processed_event")
	if out := start(t, pool, s).Deliver(t.Context(), msg); out.Err != nil || out.Result.Duplicate {
		t.Fatal(out)
	}
	check("replay after a loss", 1, 1)
}
