package handlertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/middleware"
)

// inGroups is charging with a store of groups, and more messages.
func inGroups[Tx any](pool *pgxpool.Pool, store func() dedupstore.Store[Tx],
	handler func(dedupstore.Store[Tx]) consumer.Handler) func(t testing.TB) Harness[Tx] {
	plain := charging(pool, nil)
	return func(t testing.TB) Harness[Tx] {
		t.Helper()
		h := plain(t)
		var messages []*consumer.Message
		for i := range 5 {
			messages = append(messages, consumertest.JSON("orders", fmt.Sprint("e", i), order{fmt.Sprint("o", i), 100 * i}))
		}
		return Harness[Tx]{Store: store(), Handler: handler, Messages: messages, Effects: h.Effects}
	}
}

var groupCaseNames = []string{
	"all in one transaction", "in a transaction in which another message fails",
	"failure before the record in a transaction of several", "failure after the record in a transaction of several",
	"failure in the handler in a transaction of several", "failure after the handler in a transaction of several",
	"failure at COMMIT in a transaction of several", "failure after COMMIT in a transaction of several",
}

// Handlers that write by their transaction pass with groups, whatever the store; and the messages do share
// transactions.
func TestRightHandlersInGroups(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		pool := database(t)
		var last *pgxstore.Store
		store := func() dedupstore.Store[pgx.Tx] {
			last = pgxstore.New(pool, &pgxstore.Config{Group: 50})
			return last
		}
		shared := map[string]bool{}
		harness := inGroups(pool, store, dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, insertCharge, o.ID, o.Cents)
			return err
		}))
		run(t, harness, func(name string, f func(t testing.TB)) {
			f(t)
			stats, _ := last.GroupStats()
			shared[name] = stats.Calls > stats.Transactions || stats.RolledBack > 0
		})
		for _, name := range groupCaseNames {
			if !shared[name] {
				t.Errorf("%s: no messages shared a transaction", name)
			}
		}
	})
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		pool := database(t)
		store := func() dedupstore.Store[*pgx.Batch] { return pgxstore.NewBatch(pool, &pgxstore.Config{Group: 50}) }
		Run(t, inGroups(pool, store, func(store dedupstore.Store[*pgx.Batch]) consumer.Handler {
			return middleware.Dedup(store, consumer.JSONTx(func(ctx context.Context, b *pgx.Batch, o order) error {
				b.Queue(insertCharge, o.ID, o.Cents)
				return ctx.Err()
			}), nil)
		}))
	})
	t.Run("sequence", func(t *testing.T) {
		t.Parallel()
		pool := database(t)
		store := func() dedupstore.Store[pgx.Tx] { return pgxstore.New(pool, &pgxstore.Config{Group: 50}) }
		Run(t, inGroups(pool, store, func(store dedupstore.Store[pgx.Tx]) consumer.Handler {
			charge := dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
				_, err := tx.Exec(ctx, insertCharge, o.ID, o.Cents)
				return err
			})
			mail := dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
				_, err := tx.Exec(ctx, "insert into mail values ($1)", o.ID)
				return err
			})
			return middleware.Sequence(middleware.Step{Name: "charge", Handler: charge(store)},
				middleware.Step{Name: "mail", Handler: mail(store)})
		}))
	})
}

// A setting that one message makes reaches those behind it.
func TestSettingsReachTheGroup(t *testing.T) {
	t.Parallel()
	pool := database(t)
	store := func() dedupstore.Store[pgx.Tx] { return pgxstore.New(pool, &pgxstore.Config{Group: 50}) }
	got := findings(t, inGroups(pool, store, dedup(func(ctx context.Context, tx pgx.Tx, o order) error {
		if o.ID == "o1" {
			if _, err := tx.Exec(ctx, "set local app.discount = '50'"); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "insert into charge values ($1, $2 - coalesce(nullif(current_setting('app.discount', true), ''), '0')::int)", o.ID, o.Cents)
		return err
	})))
	if finding := got["all in one transaction"]; finding == "" {
		t.Errorf("the findings are %q", got)
	}
	for name, finding := range got {
		want := []string{`one delivery does not make "charge o2 150"`}
		if name == "all in one transaction" {
			want = append(want, "SET LOCAL", "when all messages share a transaction")
		}
		wantFindings(t, map[string]string{name: finding}, want, name)
	}
}

// What stands outside of the transaction is done again for all messages of a group in which one fails.
func TestWritesWithThePoolInAGroup(t *testing.T) {
	t.Parallel()
	pool := database(t)
	store := func() dedupstore.Store[pgx.Tx] { return pgxstore.New(pool, &pgxstore.Config{Group: 50}) }
	got := findings(t, inGroups(pool, store, dedup(func(ctx context.Context, _ pgx.Tx, o order) error {
		_, err := pool.Exec(ctx, insertCharge, o.ID, o.Cents)
		return err
	})))
	name := "in a transaction in which another message fails"
	wantFindings(t, map[string]string{name: got[name]},
		[]string{"when another message fails in the transaction that all share", "applied ", "is not written by tx"}, name)
}
