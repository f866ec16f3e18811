package outbox

import (
	"context"
	"time"
)

// singlePhase sends rows within the transaction that holds their buckets' locks, and deletes them.
func (b *batch) singlePhase(ctx context.Context, buckets []int64) error {
	patience := b.cfg.PublishTimeout + sqlTimeout
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := b.cfg.Database.InTx(ctx, func(ctx context.Context, tx Tx) error {
		alive := func() error {
			err := b.guard(ctx, tx, patience) // any statement would do: the transaction is not idle then
			if err == nil {
				timer.Reset(patience)
			}
			return err
		}
		if err := b.guard(ctx, tx, patience); err != nil {
			return err
		}
		if err := b.lock(ctx, tx, buckets); err != nil || len(b.locked) == 0 {
			return err
		}
		if err := b.candidates(ctx, tx); err != nil {
			return err
		}
		if len(b.rows) > 0 {
			if err := b.fetched(ctx, tx, b.sql.fetch, numbers(idsOf(b.rows))); err != nil {
				return err
			}
			b.send(ctx, b.cfg.PublishTimeout, b.cfg.OutcomeTimeout, alive)
		}
		return b.settle(ctx, tx)
	})
	if err == nil {
		b.status.sent(b.acknowledged(), len(b.failed))
	}
	return err
}

// settle deletes, or marks, what was acknowledged and nothing else.
func (b *batch) settle(ctx context.Context, tx Tx) error {
	sql := b.sql.delete
	if b.cfg.Keep > 0 {
		sql = b.sql.publish
	}
	if list := b.acknowledged(); len(list) > 0 {
		if _, err := tx.Exec(ctx, sql, textArray(placesOf(list))); err != nil {
			return err
		}
	}
	return b.block(ctx, tx)
}

// placesOf are where the rows stand in the table.
func placesOf(rows []*row) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.at
	}
	return list
}
