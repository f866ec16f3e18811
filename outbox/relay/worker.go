package relay

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// worker sends one batch at a time.
type worker struct {
	cfg         *Config
	table       *table
	cluster     *cluster
	unavailable *unavailable
	status      *statusKeeper
	log         *slog.Logger
	blockedLog  *blockedLog
	stuck       func(error) // is told why the outcome of a batch is not known yet
	producer    *producer
}

// result is what a worker says about a batch.
type result struct {
	worker  *worker
	buckets []int64
	locked  []int64       // buckets
	barren  []int64       // of these, buckets of whose rows none can be sent
	took    time.Duration // to look for rows
	done    int           // rows that need not be looked at again: sent or blocked
	full    bool          // there may be more
	kafka   error         // if nothing could be sent
	err     error         // of the database
}

// batch sends what stands in the buckets, or some of it. What has begun is not cut short by the end of ctx, but by
// deadlines of its own.
func (w *worker) batch(ctx context.Context, buckets []int64) (res result) {
	b := &batch{worker: w, stopping: ctx, blocked: blockedKeys{}}
	ctx = context.WithoutCancel(ctx)
	if w.producer == nil {
		w.producer = newProducer(w.cluster, w.stuck)
	}
	if err := w.producer.identify(ctx); err != nil { // before anything is locked
		b.kafka = err
	} else if w.cfg.Mode == outbox.TwoPhase {
		b.dbErr = b.twoPhase(ctx, buckets)
	} else {
		b.dbErr = b.singlePhase(ctx, buckets)
	}
	return b.result(buckets)
}

// batch is the rows that a worker has in work.
type batch struct {
	worker   *worker
	stopping context.Context //nolint:containedctx // done when the relay is to stop; the batch is not cut short by it
	locked   []int64
	barren   []int64       // of these, buckets of whose rows none can be sent
	took     time.Duration // to look for rows
	full     bool
	rows     []*row      // to be sent, in the order of their ids
	unsent   []*row      // claimed, but behind a row that is somebody else's
	failed   []*row      // never to be sent as they are
	marked   int         // how many of those are BLOCKED already
	blocked  blockedKeys // of which nothing may be sent any more
	kafka    error       // the last one that was not a row's own
	dbErr    error
}

func (b *batch) result(buckets []int64) result {
	res := result{
		worker: b.worker, buckets: buckets, locked: b.locked, barren: b.barren, took: b.took, full: b.full, err: b.dbErr,
	}
	sent := 0
	for _, r := range b.rows {
		if r.outcome == acked {
			sent++
		}
	}
	if b.dbErr == nil {
		res.done = sent + len(b.failed)
	}
	if res.done == 0 {
		res.full = false // the same rows again
	}
	if b.kafka != nil {
		b.worker.status.failed(b.kafka)
		if sent == 0 {
			res.kafka = b.kafka
		}
	}
	return res
}

// fetched reads rows with their values, which the statement has locked or claimed.
func (b *batch) fetched(ctx context.Context, tx outbox.Tx, sql string, args ...any) error {
	byID := make(map[int64]*row, len(b.rows))
	for _, r := range b.rows {
		byID[r.id] = r
	}
	err := tx.Query(ctx, sql, args, func(scan func(...any) error) error {
		var now row
		var headers []byte
		if err := scan(&now.id, &now.ctid, &now.topic, &now.key, &now.eventID, &now.payload, &headers); err != nil {
			return err
		}
		r := byID[now.id]
		if r == nil || now.orderKey() != r.orderKey() || now.topic != r.topic {
			return nil // changed by hand since it was looked at
		}
		delete(byID, r.id)
		r.ctid, r.eventID, r.payload = now.ctid, now.eventID, now.payload
		var err error
		if r.headers, err = outbox.DecodeHeaders(headers); err != nil {
			r.fail(err)
		}
		return nil
	})
	b.sift(byID)
	return err
}

// sift keeps the rows that can be sent. What somebody else holds or has changed (missing) is left alone, and what
// comes after it in its key too.
func (b *batch) sift(missing map[int64]*row) {
	var send []*row
	for _, r := range b.rows {
		switch {
		case missing[r.id] != nil:
			b.blocked.add(r)
		case b.blocked.has(r):
			b.unsent = append(b.unsent, r)
		case r.outcome == failed:
			b.failed = append(b.failed, r)
			b.blocked.add(r)
		default:
			send = append(send, r)
		}
	}
	b.rows = send
}

// send sends the rows and sorts out what failed. Kafka has until the publish time-out, and for batches of which it is
// not known whether it has them until the end of outcome, unless the relay is to stop. Meanwhile alive is called from
// time to time; nothing more is sent if it fails.
func (b *batch) send(ctx context.Context, publish, outcome time.Duration, alive func() error) {
	ctx, cancel := context.WithTimeout(ctx, outcome)
	defer cancel()
	until := time.Now().Add(publish)
	defer context.AfterFunc(b.stopping, func() { time.AfterFunc(time.Until(until), cancel) })()
	end := b.startSpans(ctx)
	sent := make(chan error, 1)
	go func() { sent <- b.worker.producer.send(ctx, b.rows, until) }()
	err := b.await(sent, alive, cancel)
	end(err)
	b.kafka = cmp.Or(err, b.kafka)
	waiting := map[topicPartition]bool{}
	if slices.ContainsFunc(b.rows, func(r *row) bool { return r.outcome == acked }) {
		b.worker.status.acknowledged()
	}
	for _, r := range b.rows {
		waits := r.outcome == notSent && r.err != nil
		if r.outcome == failed {
			b.failed = append(b.failed, r)
		}
		waiting[r.to()] = waiting[r.to()] || waits
	}
	for p, waits := range waiting {
		if waits {
			b.worker.unavailable.add(p)
		} else {
			b.worker.unavailable.remove(p)
		}
	}
}

// await waits until all is sent that can be.
func (b *batch) await(sent <-chan error, alive func() error, cancel func()) error {
	tick := time.NewTicker(b.worker.cfg.PublishTimeout)
	defer tick.Stop()
	for {
		select {
		case err := <-sent:
			return err
		case <-tick.C:
			if alive() != nil {
				cancel()
			}
		}
	}
}

// acknowledged are the rows that Kafka has.
func (b *batch) acknowledged() (list []*row) {
	for _, r := range b.rows {
		if r.outcome == acked {
			list = append(list, r)
		}
	}
	return list
}

func idsOf(rows []*row) []int64 {
	list := make([]int64, len(rows))
	for i, r := range rows {
		list[i] = r.id
	}
	return list
}

// maxLastError is the length of what a row keeps of the text of its error, in bytes.
const maxLastError = 2048

// block marks the rows that failed, but for those that are marked already.
func (b *batch) block(ctx context.Context, tx outbox.Tx) error {
	failed := b.failed[b.marked:]
	if len(failed) == 0 {
		return nil
	}
	texts := make([]string, len(failed))
	for i, r := range failed {
		texts[i] = redact.Message(r.err.Error(), r.parts(), maxLastError)
	}
	b.worker.blockedLog.add(failed)
	_, err := tx.Exec(ctx, b.worker.table.sql.block, outboxsql.BigintArray(idsOf(failed)),
		outboxsql.BigintArray(epochsOf(failed)), outboxsql.TextArray(texts))
	return err
}
