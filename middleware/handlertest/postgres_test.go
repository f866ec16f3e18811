package handlertest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

type order struct {
	ID    string
	Cents int
}

type pgHandler func(ctx context.Context, tx pgx.Tx, o order) error

const insertCharge = "insert into charge (id, cents) values ($1, $2)"

// database is a schema with the tables of a service that charges orders.
func database(t testing.TB, more ...string) *pgxpool.Pool {
	t.Helper()
	pool := serverstest.Pool(t)
	exec := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	err := schema.Postgres.Apply(t.Context(), exec, nil, schema.Dedup)
	for _, sql := range append([]string{"create table charge (id text, cents int)", "create table mail (id text)"},
		more...) {
		err = errors.Join(err, exec(t.Context(), sql))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// charging opens a harness on one database, which it empties for each case.
func charging(pool *pgxpool.Pool,
	handler func(store dedupstore.Store[pgx.Tx]) consumer.Handler) func(t testing.TB) Harness[pgx.Tx] {
	return func(t testing.TB) Harness[pgx.Tx] {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "truncate processed_event, charge, mail"); err != nil {
			t.Fatal(err)
		}
		return Harness[pgx.Tx]{
			Store:   pgxstore.New(pool, nil),
			Handler: handler,
			Messages: []*consumer.Message{
				consumertest.JSON("orders", "e1", order{"o1", 500}),
				consumertest.JSON("orders", "e2", order{"o2", 700}),
			},
			Effects: func(ctx context.Context) ([]string, error) {
				rows, err := pool.Query(ctx, "select 'charge ' || id || ' ' || cents from charge union all select 'mail ' || id from mail")
				if err != nil {
					return nil, err
				}
				return pgx.CollectRows(rows, pgx.RowTo[string])
			},
		}
	}
}

func dedup(fn pgHandler) func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
	return func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
		return middleware.Dedup(store, consumer.JSONTx(fn), nil)
	}
}

func TestRightHandlersOnPostgreSQL(t *testing.T) {
	t.Parallel()
	charge := func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, insertCharge, o.ID, o.Cents)
		return err
	}
	mail := func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, "insert into mail values ($1)", o.ID)
		return err
	}
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		Run(t, charging(database(t), dedup(charge)))
	})
	t.Run("sequence", func(t *testing.T) {
		t.Parallel()
		Run(t, charging(database(t), func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
			return middleware.Sequence(
				middleware.Step{Name: "charge", Handler: dedup(charge)(store),
					Middleware: []consumer.Middleware{middleware.Retry(3, nil)}},
				middleware.Step{Name: "mail", Handler: dedup(mail)(store),
					Middleware: []consumer.Middleware{middleware.Retry(3, nil), middleware.Recover()}},
			)
		}))
	})
}

func TestWritesWithThePool(t *testing.T) {
	t.Parallel()
	pool := database(t)
	got := findings(t, charging(pool, dedup(func(ctx context.Context, _ pgx.Tx, o order) error {
		_, err := pool.Exec(ctx, insertCharge, o.ID, o.Cents)
		return err
	})))
	wantFindings(t, got, []string{`message 0 (event "e1"), when the store fails `, `applied twice: "charge o1 500"`,
		"is not written by tx", "another connection"},
		"failure after the handler", "failure at COMMIT")
}

// What it left behind is in its own way.
func TestWritesWithThePoolUnderAUniqueIndex(t *testing.T) {
	t.Parallel()
	pool := database(t, "create unique index on charge (id)")
	got := findings(t, charging(pool, dedup(func(ctx context.Context, _ pgx.Tx, o order) error {
		_, err := pool.Exec(ctx, insertCharge, o.ID, o.Cents)
		return err
	})))
	wantFindings(t, got, []string{"it does not get through any more", "attempt 20: ERROR: duplicate key",
		"is not written by tx"},
		"failure after the handler", "failure at COMMIT")
}

func TestSwallowsTheErrorOfAStatement(t *testing.T) {
	t.Parallel()
	got := findings(t, charging(database(t), dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
		_, _ = tx.Exec(ctx, insertCharge, o.ID, o.Cents)
		return nil
	})))
	wantFindings(t, got, []string{`message 0 (event "e1"), when the store fails in the handler`, `lost: "charge o1 500"`,
		"it swallows an error"}, "failure in the handler")
}

// One of two steps forgets tx: the finding says which call of the store it was.
func TestOneStepWritesWithThePool(t *testing.T) {
	t.Parallel()
	pool := database(t)
	got := findings(t, charging(pool, func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
		return middleware.Sequence(
			middleware.Step{Name: "charge", Handler: dedup(func(ctx context.Context, _ pgx.Tx, o order) error {
				_, err := pool.Exec(ctx, insertCharge, o.ID, o.Cents)
				return err
			})(store)},
			middleware.Step{Name: "mail", Handler: dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
				_, err := tx.Exec(ctx, "insert into mail values ($1)", o.ID)
				return err
			})(store)},
		)
	}))
	wantFindings(t, got, []string{`applied twice: "charge o1 500"`}, "failure after the handler, call 1 of the store",
		"failure at COMMIT, call 1 of the store")
}

// A missing table is found before the first message, as by Run.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	got := findings(t, func(testing.TB) Harness[pgx.Tx] {
		return Harness[pgx.Tx]{
			Store:    pgxstore.New(pool, nil),
			Handler:  dedup(func(context.Context, pgx.Tx, order) error { return nil }),
			Messages: []*consumer.Message{consumertest.JSON("orders", "e1", order{})},
			Effects:  func(context.Context) ([]string, error) { return nil, nil },
		}
	})
	if len(got) != 1 || !strings.Contains(got[""], "processed_event") ||
		!strings.Contains(got[""], "consumer.Run would not start") {
		t.Errorf("%q", got)
	}
}
