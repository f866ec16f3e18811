package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/redact"
)

// worker sends one batch at a time.
type worker struct {
	*running
	producer *producer
}

// batch sends what stands in the buckets, or some of it. What has begun is not cut short by the end of ctx, but by deadlines of its own.
func (w *worker) batch(ctx context.Context, buckets []int64) (res result) {
	b := &batch{worker: w, stopping: ctx, held: keys{}}
	ctx = context.WithoutCancel(ctx)
	if w.producer == nil {
		w.producer = newProducer(w.cluster, w.stuck)
	}
	if err := w.producer.identify(ctx); err != nil { // before anything is locked
		b.kafka = err
	} else if w.cfg.Mode == TwoPhase {
		b.dbErr = b.twoPhase(ctx, buckets)
	} else {
		b.dbErr = b.singlePhase(ctx, buckets)
	}
	return b.result(buckets)
}

// batch is the rows that a worker has in work.
type batch struct {
	*worker
	stopping context.Context //nolint:containedctx // done when the relay is to stop; the batch is not cut short by it
	locked   []int64
	barren   []int64       // of these, buckets of whose rows none can be sent
	took     time.Duration // to look for rows
	full     bool
	rows     []*row // to be sent, in the order of their ids
	unsent   []*row // claimed, but behind a row that is somebody else's
	failed   []*row // never to be sent as they are
	marked   int    // how many of those are BLOCKED already
	held     keys   // of which nothing may be sent any more
	kafka    error  // the last one that was not a row's own
	dbErr    error
}

func (b *batch) result(buckets []int64) result {
	res := result{worker: b.worker, buckets: buckets, locked: b.locked, barren: b.barren, took: b.took, full: b.full, err: b.dbErr}
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
		b.status.failed(b.kafka)
		if sent == 0 {
			res.kafka = b.kafka
		}
	}
	return res
}

// maxLook is how many rows of a bucket are looked at when those before them are passed over.
const maxLook = 64_000

// candidates reads the first rows of the locked buckets, without their values, and sorts out which are sent.
func (b *batch) candidates(ctx context.Context, tx Tx) error {
	each := int64((b.cfg.BatchRows + len(b.locked) - 1) / len(b.locked))
	limits, seen := make([]int64, len(b.locked)), map[int64]int64{}
	for i, bucket := range b.locked {
		limits[i] = min(maxLook, each*b.status.wider(bucket))
	}
	var found []*row
	begun := time.Now()
	err := tx.Query(ctx, b.sql.candidates, []any{numbers(b.locked), numbers(limits)}, func(scan func(...any) error) error {
		r := &row{}
		found = append(found, r)
		if err := scan(&r.bucket, &r.id, &r.topic, &r.key, &r.size, &r.claims, &r.named); err != nil {
			return err
		}
		seen[r.bucket]++
		return nil
	})
	if err != nil {
		return err
	}
	b.took = time.Since(begun)
	slices.SortFunc(found, func(x, y *row) int { return cmp.Compare(x.id, y.id) })
	taken := b.preflight(found, map[string]topicState{})
	for i, bucket := range b.locked {
		if seen[bucket] == 0 {
			b.barren = append(b.barren, bucket)
		}
		full := seen[bucket] == limits[i]
		b.full = b.full || full
		b.status.widen(bucket, full && taken[bucket] == 0)
	}
	return nil
}

// preflight takes rows until the batch is full. A row that cannot be sent holds its key. topics remembers what is known of topics. It returns
// how many were taken of each bucket.
func (b *batch) preflight(found []*row, topics map[string]topicState) (taken map[int64]int) {
	taken = map[int64]int{}
	places := keyPlaces{at: map[string]int32{}, later: keys{}}
	size := 0
	for _, r := range found {
		if b.held.held(r) || places.later.held(r) {
			continue
		}
		r.size += recordOverhead + 2*headerOverhead + len(r.key) + len(IDHeader)
		if len(b.rows) >= b.cfg.BatchRows || len(b.rows) > 0 && size+r.size > b.cfg.BatchBytes {
			b.full = true
			break
		}
		switch ok, err := b.sendable(r, topics); {
		case err != nil:
			r.fail(err)
			b.failed = append(b.failed, r)
			b.held.hold(r)
			taken[r.bucket]++
		case !ok:
			b.held.hold(r)
		case places.elsewhere(r): // it is sent when what stands before it is in Kafka
			places.later.hold(r)
			b.full = true
		default:
			size += r.size
			b.rows = append(b.rows, r)
			taken[r.bucket]++
		}
	}
	return taken
}

// topicState is what one batch knows about a topic.
type topicState struct {
	partitions int32
	err        error // its rows fail
	choose     *partitioner
	wait       bool // its rows wait
}

// sendable reports whether a row can be sent now, and chooses its partition. The error is why it never can.
func (b *batch) sendable(r *row, topics map[string]topicState) (bool, error) {
	if limit := b.conf.Producer.MaxMessageBytes; r.size+recordBatchOverhead > limit {
		return false, fmt.Errorf("the record has about %d bytes, at most %d are sent: raise Producer.MaxMessageBytes in Config.Sarama together with the topic's max.message.bytes, or discard the event",
			r.size, limit-recordBatchOverhead)
	}
	t, known := topics[r.topic]
	if !known {
		t = b.topic(r.topic)
		topics[r.topic] = t
	}
	if t.err != nil || t.wait {
		return false, t.err
	}
	if err := r.choose(t); err != nil {
		return false, err
	}
	return !b.holds.held(r.place()), nil
}

// choose has the row go to the partition that it names, if the topic has that, else to that of its key.
func (r *row) choose(t topicState) error {
	switch {
	case r.named == nil || *r.named >= int64(t.partitions):
		r.partition = t.choose.partition(r.key, t.partitions)
	case *r.named < 0:
		return fmt.Errorf("its partition is %d: there is none below 0", *r.named)
	default:
		r.partition = int32(*r.named) //nolint:gosec // less than t.partitions
	}
	return nil
}

// keyPlaces are the partitions of the keys of a batch, and those of which the rest waits for the next one.
type keyPlaces struct {
	at    map[string]int32
	later keys
}

// elsewhere reports whether rows of its key go to another partition in this batch.
func (k *keyPlaces) elsewhere(r *row) bool {
	key := r.orderKey()
	if key == "" {
		return false
	}
	at, known := k.at[key]
	if !known {
		k.at[key] = r.partition
	}
	return known && at != r.partition
}

func (b *batch) topic(name string) topicState {
	if err := validateTopic(name); err != nil {
		return topicState{err: err}
	}
	whole := place{name, unknownPartition}
	if b.holds.held(whole) {
		return topicState{wait: true}
	}
	n, err := b.cluster.partitions(name)
	switch {
	case errors.Is(err, errUnknownTopic), errors.Is(err, errTopicForbidden):
		return topicState{err: err}
	case err != nil:
		b.holds.add(whole)
		err = fmt.Errorf("topic %s: %w", name, err)
		if b.status.failed(err); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
			b.kafka = err
		}
		return topicState{wait: true}
	}
	b.holds.release(whole)
	return topicState{partitions: n, choose: newPartitioner(b.cfg.partitionerOf(name), name)}
}

// fetched reads rows with their values, which the statement has locked or claimed.
func (b *batch) fetched(ctx context.Context, tx Tx, sql string, args ...any) error {
	byID := make(map[int64]*row, len(b.rows))
	for _, r := range b.rows {
		byID[r.id] = r
	}
	err := tx.Query(ctx, sql, args, func(scan func(...any) error) error {
		var now row
		var headers []byte
		if err := scan(&now.id, &now.at, &now.topic, &now.key, &now.eventID, &now.payload, &headers); err != nil {
			return err
		}
		r := byID[now.id]
		if r == nil || now.orderKey() != r.orderKey() || now.topic != r.topic {
			return nil // changed by hand since it was looked at
		}
		delete(byID, r.id)
		r.at, r.eventID, r.payload = now.at, now.eventID, now.payload
		var err error
		if r.headers, err = DecodeHeaders(headers); err != nil {
			r.fail(err)
		}
		return nil
	})
	b.sift(byID)
	return err
}

// sift keeps the rows that can be sent. What somebody else holds or has changed (missing) is left alone, and what comes after it in its
// key too.
func (b *batch) sift(missing map[int64]*row) {
	var send []*row
	for _, r := range b.rows {
		switch {
		case missing[r.id] != nil:
			b.held.hold(r)
		case b.held.held(r):
			b.unsent = append(b.unsent, r)
		case r.outcome == failed:
			b.failed = append(b.failed, r)
			b.held.hold(r)
		default:
			send = append(send, r)
		}
	}
	b.rows = send
}

// send sends the rows and sorts out what failed. Kafka has until the publish time-out, and for batches of which it is not known whether it has
// them until the end of outcome, unless the relay is to stop. Meanwhile alive is called from time to time; nothing more is sent if it fails.
func (b *batch) send(ctx context.Context, publish, outcome time.Duration, alive func() error) {
	ctx, cancel := context.WithTimeout(ctx, outcome)
	defer cancel()
	until := time.Now().Add(publish)
	defer context.AfterFunc(b.stopping, func() { time.AfterFunc(time.Until(until), cancel) })()
	end := b.startSpans(ctx)
	sent := make(chan error, 1)
	go func() { sent <- b.producer.send(ctx, b.rows, until) }()
	err := b.await(sent, alive, cancel)
	end(err)
	b.kafka = cmp.Or(err, b.kafka)
	places := map[place]bool{}
	if slices.ContainsFunc(b.rows, func(r *row) bool { return r.outcome == acked }) {
		b.status.acknowledged()
	}
	for _, r := range b.rows {
		waits := r.outcome == notSent && r.err != nil
		if r.outcome == failed {
			b.failed = append(b.failed, r)
		}
		places[r.place()] = places[r.place()] || waits
	}
	for p, wait := range places {
		if wait {
			b.holds.add(p)
		} else {
			b.holds.release(p)
		}
	}
}

// await waits until all is sent that can be.
func (b *batch) await(sent <-chan error, alive func() error, cancel func()) error {
	tick := time.NewTicker(b.cfg.PublishTimeout)
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

// guard sets the time-outs of the transaction. Those of the session or the role may be shorter than Kafka's answer takes.
func (b *batch) guard(ctx context.Context, tx Tx, idle time.Duration) error {
	return tx.Query(ctx, b.sql.guard, []any{millis(idle), millis(lockTimeout), millis(sqlTimeout)}, func(func(...any) error) error { return nil })
}

// lockTimeout is how long a statement waits for rows that somebody changes by hand.
const lockTimeout = time.Second

// lock locks those of the buckets that nobody else has locked, until the end of the transaction.
func (b *batch) lock(ctx context.Context, tx Tx, buckets []int64) error {
	return tx.Query(ctx, b.sql.lock, []any{numbers(buckets), b.tables.event}, func(scan func(...any) error) error {
		var bucket int64
		err := scan(&bucket)
		b.locked = append(b.locked, bucket)
		return err
	})
}

// maxLastError is the length of what a row keeps of the text of its error, in bytes.
const maxLastError = 2048

// block marks the rows that failed, but for those that are marked already.
func (b *batch) block(ctx context.Context, tx Tx) error {
	failed := b.failed[b.marked:]
	if len(failed) == 0 {
		return nil
	}
	texts := make([]string, len(failed))
	for i, r := range failed {
		texts[i] = redact.Message(r.err.Error(), r.parts(), maxLastError)
	}
	b.blockedLog.add(failed)
	_, err := tx.Exec(ctx, b.sql.block, numbers(idsOf(failed)), numbers(epochsOf(failed)), textArray(texts))
	return err
}
