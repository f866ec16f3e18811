package middleware_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// A handler that is cancelled in the middle of a call and swallows it: whatever it returns, nothing of it stays. It is
// cancelled by the end of the drain, and by Timeout.
func TestSwallowedCancellationOfAChain(t *testing.T) {
	t.Parallel()
	const insert = "insert into effect values ('e')"
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		pool := serverstest.Pool(t)
		swallowedCancellation(t, pgxstore.New(pool, nil), chainDatabase(t, pool.Config().ConnString()),
			func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insert)
				return err
			})
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		db := chainDatabase(t, serverstest.DatabaseURL(t))
		swallowedCancellation(t, sqlstore.New(db, schema.Postgres, nil), db, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insert)
			return err
		})
	})
	t.Run("bun", func(t *testing.T) {
		t.Parallel()
		db := chainDatabase(t, serverstest.DatabaseURL(t)+"&default_query_exec_mode=exec")
		swallowedCancellation(t, bunstore.New(bun.NewDB(db, pgdialect.New()), nil), db,
			func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.ExecContext(ctx, insert)
				return err
			})
	})
}

// chainDatabase has the tables of a chain.
func chainDatabase(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, text := range []string{schema.Postgres.SQL(nil), "create table effect (name text)"} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func swallowedCancellation[Tx any](t *testing.T, store dedupstore.Store[Tx], db *sql.DB,
	write func(context.Context, Tx) error) {
	t.Helper()
	// a service that answers nobody who is still there
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	called := func() {}
	slow := true
	handler := func(ctx context.Context, tx Tx, _ *consumer.Message) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		if slow {
			called()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if res, err := server.Client().Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
		return nil // swallowed
	}
	chains := func(limit time.Duration) *consumertest.Chains {
		return consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"t": {
			Middleware: []consumer.Middleware{middleware.Retry(2, nil), middleware.Timeout(limit)},
			Handler:    middleware.Dedup(store, handler, nil),
			OnFailure:  consumer.Stop,
		}}}, nil)
	}
	check := func(when string, want int) {
		t.Helper()
		for _, table := range []string{"effect", "processed_event"} {
			var n int
			if err := db.QueryRowContext(t.Context(), "select count(*) from "+table).Scan(&n); err != nil || n != want {
				t.Errorf("%s: %d rows in %s, %v, want %d", when, n, table, err, want)
			}
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	called = cancel
	if out := chains(time.Minute).Deliver(ctx, consumertest.Message("t", "e1", nil)); out.End != consumertest.Cancelled {
		t.Errorf("the drain ends: %v, %v", out.End, out)
	}
	check("the drain ends", 0)

	called = func() {}
	if out := chains(300*time.Millisecond).Deliver(t.Context(),
		consumertest.Message("t", "e1", nil)); out.End != consumertest.Stopped || len(out.Attempts) != 2 {
		t.Errorf("Timeout: %v, %v", out.End, out)
	}
	check("Timeout", 0)

	slow = false
	if out := chains(time.Minute).Deliver(t.Context(), consumertest.Message("t", "e1", nil)); out.Err != nil ||
		out.Result.Duplicate {
		t.Errorf("the next delivery: %v", out)
	}
	check("the next delivery", 1)
}
