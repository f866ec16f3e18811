package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
)

// A two-phase relay whose rows cannot be marked tries that until its lease is nearly over, then leaves them to their
// next owner: they are sent twice.
func TestMarkThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	cfg := b.config(outbox.TwoPhase)
	cfg.Workers, cfg.PublishTimeout, cfg.LeaseTTL = 1, time.Second, 12*time.Second
	began := time.Now()
	cfg.Database = unmarking{b.db, func() bool { return time.Since(began) < 14*time.Second }}
	r := start(t, cfg)
	eventually(t, "all are marked", func() bool { return b.rows("true") == 0 && r.Status().Published == 2 })
	if got := b.topicHas(); got != "1 2 1 2" || r.Status().Error == nil {
		t.Errorf("the topic has %s; Status tells of %v", got, r.Status().Error)
	}
}

var errBroken = errors.New("broken")

// unmarking is a Database in which rows cannot be marked while down says so.
type unmarking struct {
	outbox.Database
	down func() bool
}

func (u unmarking) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return u.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, unmarkingTx{tx, u.down}) })
}

type unmarkingTx struct {
	outbox.Tx
	down func() bool
}

func (t unmarkingTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if strings.Contains(sql, "delete from") && strings.Contains(sql, "o.claim_epoch = ((") && t.down() {
		return 0, errBroken
	}
	return t.Tx.Exec(ctx, sql, args...)
}
