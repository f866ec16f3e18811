package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/topicname"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/outbox/internal/recordsize"
)

// maxLook is how many rows of a bucket are looked at when those before them are passed over.
const maxLook = 64_000

// candidates reads the first rows of the locked buckets, without their values, and sorts out which are sent.
func (b *batch) candidates(ctx context.Context, tx outbox.Tx) error {
	each := int64((b.worker.cfg.BatchRows + len(b.locked) - 1) / len(b.locked))
	limits, seen := make([]int64, len(b.locked)), map[int64]int64{}
	for i, bucket := range b.locked {
		limits[i] = min(maxLook, each*b.worker.status.wider(bucket))
	}
	var found []*row
	begun := time.Now()
	args := []any{outboxsql.BigintArray(b.locked), outboxsql.BigintArray(limits)}
	err := tx.Query(ctx, b.worker.table.sql.candidates, args, func(scan func(...any) error) error {
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
		b.worker.status.widen(bucket, full && taken[bucket] == 0)
	}
	return nil
}

// preflight takes rows until the batch is full. A row that cannot be sent holds its key. topics remembers what is
// known of topics. It returns how many were taken of each bucket.
func (b *batch) preflight(found []*row, topics map[string]topicState) (taken map[int64]int) {
	taken = map[int64]int{}
	partitions := keyPartitions{at: map[string]int32{}, later: blockedKeys{}}
	size := 0
	for _, r := range found {
		if b.blocked.has(r) || partitions.later.has(r) {
			continue
		}
		r.size += recordsize.Record + 2*recordsize.Header + len(r.key) + len(outbox.IDHeader)
		if len(b.rows) >= b.worker.cfg.BatchRows || len(b.rows) > 0 && size+r.size > b.worker.cfg.BatchBytes {
			b.full = true
			break
		}
		switch ok, err := b.sendable(r, topics); {
		case err != nil:
			r.fail(err)
			b.failed = append(b.failed, r)
			b.blocked.add(r)
			taken[r.bucket]++
		case !ok:
			b.blocked.add(r)
		case partitions.elsewhere(r): // it is sent when what stands before it is in Kafka
			partitions.later.add(r)
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
	if limit := b.worker.cluster.conf.Producer.MaxMessageBytes; r.size+recordsize.Batch > limit {
		return false, fmt.Errorf("the record has about %d bytes, at most %d are sent: raise Producer.MaxMessageBytes in "+
			"Config.Sarama together with the topic's max.message.bytes, or discard the event", r.size, limit-recordsize.Batch)
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
	return !b.worker.unavailable.has(r.to()), nil
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

// keyPartitions are the partitions of the keys of a batch, and those of which the rest waits for the next one.
type keyPartitions struct {
	at    map[string]int32
	later blockedKeys
}

// elsewhere reports whether rows of its key go to another partition in this batch.
func (k *keyPartitions) elsewhere(r *row) bool {
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
	if err := topicname.Check(name); err != nil {
		return topicState{err: fmt.Errorf("%w: %w", outbox.ErrInvalidEvent, err)}
	}
	whole := topicPartition{name, unknownPartition}
	if b.worker.unavailable.has(whole) {
		return topicState{wait: true}
	}
	n, err := b.worker.cluster.partitions(name)
	switch {
	case errors.Is(err, errUnknownTopic), errors.Is(err, errTopicForbidden):
		return topicState{err: err}
	case err != nil:
		b.worker.unavailable.add(whole)
		err = fmt.Errorf("topic %s: %w", name, err)
		b.worker.status.failed(err)
		if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
			b.kafka = err
		}
		return topicState{wait: true}
	}
	b.worker.unavailable.remove(whole)
	return topicState{partitions: n, choose: newPartitioner(b.worker.cfg.partitionerOf(name), name)}
}
