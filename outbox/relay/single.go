package relay

import (
	"context"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// singlePhase sends rows within the transaction that holds their buckets' locks, and deletes them.
func (b *batch) singlePhase(ctx context.Context, buckets []int64) error {
	patience := b.worker.cfg.PublishTimeout + sqlTimeout
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := b.worker.table.db.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		alive := func() error {
			err := b.worker.table.guard(ctx, tx, patience) // any statement would do: the transaction is not idle then
			if err == nil {
				timer.Reset(patience)
			}
			return err
		}
		if err := b.worker.table.guard(ctx, tx, patience); err != nil {
			return err
		}
		var err error
		if b.locked, err = b.worker.table.lock(ctx, tx, buckets); err != nil || len(b.locked) == 0 {
			return err
		}
		if err := b.candidates(ctx, tx); err != nil {
			return err
		}
		if len(b.rows) > 0 {
			if err := b.fetched(ctx, tx, b.worker.table.sql.fetch, outboxsql.BigintArray(idsOf(b.rows))); err != nil {
				return err
			}
			b.send(ctx, b.worker.cfg.PublishTimeout, b.worker.cfg.OutcomeTimeout, alive)
		}
		return b.settle(ctx, tx)
	})
	if err == nil {
		b.worker.status.sent(b.acknowledged(), len(b.failed))
	}
	return err
}

// settle deletes, or marks, what was acknowledged and nothing else.
func (b *batch) settle(ctx context.Context, tx outbox.Tx) error {
	sql := b.worker.table.sql.delete
	if b.worker.cfg.Keep > 0 {
		sql = b.worker.table.sql.publish
	}
	if list := b.acknowledged(); len(list) > 0 {
		if _, err := tx.Exec(ctx, sql, outboxsql.TextArray(ctidsOf(list))); err != nil {
			return err
		}
	}
	return b.block(ctx, tx)
}

// ctidsOf are where the rows stand in the table.
func ctidsOf(rows []*row) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.ctid
	}
	return list
}
