package relay

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// twoPhase claims rows in one transaction, sends them, and marks them in another.
//
//	lease of the buckets, epoch+1 ▸ take back what older epochs left ▸ PENDING→PUBLISHING │ send │ →PUBLISHED, or given back ▸ lease ends
//
// A relay that dies in between leaves its lease to expire: the next one takes its rows back before it claims any. One
// that was frozen and comes back marks nothing that has been taken back; what it still sends are copies of what
// stands before.
func (b *batch) twoPhase(ctx context.Context, buckets []int64) error {
	begun := time.Now()
	leases := map[int64]int64{}
	if err := b.claim(ctx, buckets, leases); err != nil || len(leases) == 0 {
		return err
	}
	if len(b.rows) > 0 {
		// the server's clock has begun to count later than ours
		left := b.worker.cfg.LeaseTTL - sqlTimeout/2 - time.Since(begun)
		publish, outcome := min(b.worker.cfg.PublishTimeout, left), min(b.worker.cfg.OutcomeTimeout, left)
		b.send(ctx, publish, outcome, func() error { return nil })
	}
	return b.mark(ctx, leases, begun.Add(b.worker.cfg.LeaseTTL))
}

// claim leases buckets and claims rows in them.
func (b *batch) claim(ctx context.Context, buckets []int64, leases map[int64]int64) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	var back int64
	err := b.worker.table.db.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if err := b.worker.table.guard(ctx, tx, sqlTimeout); err != nil {
			return err
		}
		var err error
		// those of the operators' functions
		if b.locked, err = b.worker.table.lock(ctx, tx, buckets); err != nil || len(b.locked) == 0 {
			return err
		}
		if err := b.lease(ctx, tx, leases); err != nil || len(b.locked) == 0 {
			return err
		}
		most := strconv.Itoa(b.worker.cfg.MaxClaims)
		if back, err = tx.Exec(ctx, b.worker.table.sql.takeBack, outboxsql.BigintArray(b.locked), most); err != nil {
			return err
		}
		if err := b.candidates(ctx, tx); err != nil {
			return err
		}
		if err := b.block(ctx, tx); err != nil {
			return err
		}
		b.marked = len(b.failed)
		b.isolate()
		return b.claimRows(ctx, tx, leases)
	})
	if err != nil {
		return err
	}
	if back > 0 {
		b.worker.status.returned(back)
		b.worker.log.Warn("outbox: rows of a relay that ended while it held them are sent again",
			slog.Int64("rows", back))
	}
	return nil
}

// lease leases those of the locked buckets that are free.
func (b *batch) lease(ctx context.Context, tx outbox.Tx, leases map[int64]int64) error {
	args := []any{outboxsql.BigintArray(b.locked), b.worker.cfg.Name, interval(b.worker.cfg.LeaseTTL)}
	b.locked = nil
	return tx.Query(ctx, b.worker.table.sql.lease, args, func(scan func(...any) error) error {
		var bucket, epoch int64
		err := scan(&bucket, &epoch)
		b.locked = append(b.locked, bucket)
		leases[bucket] = epoch
		return err
	})
}

// isolate claims a row alone whose relays died again and again, so that the others are not taken for it.
func (b *batch) isolate() {
	many := int64(max(1, b.worker.cfg.MaxClaims/4))
	suspect := slices.IndexFunc(b.rows, func(r *row) bool { return r.claims >= many })
	switch {
	case suspect > 0:
		b.rows, b.full = b.rows[:suspect], true
	case suspect == 0:
		b.rows, b.full = b.rows[:1], true
	}
}

func (b *batch) claimRows(ctx context.Context, tx outbox.Tx, leases map[int64]int64) error {
	if len(b.rows) == 0 {
		return nil
	}
	for _, r := range b.rows {
		r.epoch = leases[r.bucket]
	}
	ids, epochs := outboxsql.BigintArray(idsOf(b.rows)), outboxsql.BigintArray(epochsByBucket(b.rows))
	err := b.fetched(ctx, tx, b.worker.table.sql.claim, ids, epochs, interval(b.worker.cfg.LeaseTTL))
	if err != nil {
		return err
	}
	_, err = b.ofOurs(ctx, tx, b.worker.table.sql.giveBack, b.unsent)
	return err
}

// mark marks what was sent, gives back what was not, and ends the leases. It is tried again until the leases have
// expired: what is not marked is sent twice.
func (b *batch) mark(ctx context.Context, leases map[int64]int64, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, max(sqlTimeout, time.Until(deadline)))
	defer cancel()
	for wait := newBackoff(50*time.Millisecond, time.Second); ; {
		err := b.markOnce(ctx, leases)
		if err == nil || time.Until(deadline) < sqlTimeout {
			return err
		}
		b.worker.status.failed(err)
		sleep(ctx, wait.next())
	}
}

func (b *batch) markOnce(ctx context.Context, leases map[int64]int64) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	sent := b.acknowledged()
	var marked int64
	err := b.worker.table.db.InTx(ctx, func(ctx context.Context, tx outbox.Tx) (err error) {
		if err := b.worker.table.guard(ctx, tx, sqlTimeout); err != nil {
			return err
		}
		sql := b.worker.table.sql.markPublish
		if b.worker.cfg.Keep <= 0 {
			sql = b.worker.table.sql.markDelete
		}
		if marked, err = b.markSent(ctx, tx, sql, sent); err != nil {
			return err
		}
		if err := b.block(ctx, tx); err != nil {
			return err
		}
		if _, err := b.ofOurs(ctx, tx, b.worker.table.sql.giveBack, b.open()); err != nil {
			return err
		}
		return b.unlease(ctx, tx, leases)
	})
	if err != nil {
		return err
	}
	b.worker.status.sent(sent[:marked], len(b.failed))
	if lost := int64(len(sent)) - marked; lost > 0 {
		b.worker.status.lost(lost)
		b.worker.log.Error("outbox: the lease was lost before the rows were marked: they are sent twice",
			slog.Int64("rows", lost))
	}
	return nil
}

// markSent marks rows where the claim has left them, and by their ids those that somebody has moved.
func (b *batch) markSent(ctx context.Context, tx outbox.Tx, sql [2]string, sent []*row) (int64, error) {
	if len(sent) == 0 {
		return 0, nil
	}
	marked, err := tx.Exec(ctx, sql[0], outboxsql.TextArray(ctidsOf(sent)),
		outboxsql.BigintArray(epochsByBucket(sent)), outboxsql.BigintArray(idsOf(sent)))
	if err != nil || marked == int64(len(sent)) {
		return marked, err
	}
	n, err := b.ofOurs(ctx, tx, sql[1], sent)
	return marked + n, err
}

// open are the rows of which it is not known that Kafka has them.
func (b *batch) open() (list []*row) {
	for _, r := range b.rows {
		if r.outcome == notSent {
			list = append(list, r)
		}
	}
	return list
}

// ofOurs runs a statement for those of the rows that have not been taken back.
func (b *batch) ofOurs(ctx context.Context, tx outbox.Tx, sql string, rows []*row) (int64, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	return tx.Exec(ctx, sql, outboxsql.BigintArray(idsOf(rows)), outboxsql.BigintArray(epochsByBucket(rows)))
}

func (b *batch) unlease(ctx context.Context, tx outbox.Tx, leases map[int64]int64) error {
	var buckets, epochs []int64
	for bucket, epoch := range leases {
		buckets, epochs = append(buckets, bucket), append(epochs, epoch)
	}
	_, err := tx.Exec(ctx, b.worker.table.sql.unlease, outboxsql.BigintArray(buckets), outboxsql.BigintArray(epochs))
	return err
}

func epochsOf(rows []*row) []int64 {
	list := make([]int64, len(rows))
	for i, r := range rows {
		list[i] = r.epoch
	}
	return list
}

// epochsByBucket are those of the leases under which rows are claimed, 0 for all other buckets.
func epochsByBucket(rows []*row) []int64 {
	list := make([]int64, outboxsql.Buckets)
	for _, r := range rows {
		list[r.bucket] = r.epoch
	}
	return list
}
