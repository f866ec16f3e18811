package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox/internal/recordsize"
)

// partitionQueue is the rows of a batch that go to one partition, in their order.
type partitionQueue struct {
	to       topicPartition
	rows     []*row // that have no outcome yet
	blocked  blockedKeys
	inFlight []*row // the record batch on its way, or to be sent again; then it must stay as it is
	sequence int32  // of inFlight, or of the next one

	limit   int // rows in a record batch, to find one that is refused; 0 is no limit
	retries int // of inFlight
	begun   time.Time
	unclear bool  // Kafka may have inFlight
	failure error // of the last attempt
	err     error // why the queue was given up
}

// most attempts at one record batch that Kafka does not have; then the relay pauses and begins again from the table.
const maxRetries = 4

func newQueues(rows []*row, sequences map[topicPartition]int32) (queues []*partitionQueue) {
	at := map[topicPartition]*partitionQueue{}
	for _, r := range rows {
		q := at[r.to()]
		if q == nil {
			q = &partitionQueue{to: r.to(), blocked: blockedKeys{}, sequence: sequences[r.to()]}
			at[r.to()] = q
			queues = append(queues, q)
		}
		q.rows = append(q.rows, r)
	}
	return queues
}

func (q *partitionQueue) done() bool { return len(q.rows) == 0 && len(q.inFlight) == 0 }

// openQueues are those with something to send: any rows until the publish time-out has passed, then batches that
// Kafka may have.
func openQueues(queues []*partitionQueue, until time.Time) (open []*partitionQueue) {
	late := !time.Now().Before(until)
	for _, q := range queues {
		if q.err == nil && !q.done() && (q.unclear || !late) {
			open = append(open, q)
		}
	}
	return open
}

// pause waits before another attempt, if that is all there is to do. It reports whether to go on.
func pause(ctx context.Context, queues []*partitionQueue) bool {
	retries := math.MaxInt
	for _, q := range queues {
		retries = min(retries, q.retries)
	}
	if retries == 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(50 * time.Millisecond << min(retries, maxRetries))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cut takes the next rows for a record batch, unless there is one to be sent again.
func (q *partitionQueue) cut(maxBytes int) {
	if len(q.inFlight) > 0 {
		return
	}
	n, size := 0, recordsize.Batch
	for n < len(q.rows) && (q.limit == 0 || n < q.limit) {
		size += q.rows[n].size
		if n > 0 && size > maxBytes {
			break
		}
		n++
	}
	q.inFlight, q.rows, q.begun = q.rows[:n:n], q.rows[n:], time.Now()
}

// answer is Kafka's for inFlight.
func (q *partitionQueue) answer(block *sarama.ProduceResponseBlock) {
	switch kind := classOf(block.Err); kind {
	case errNone:
		q.acknowledged()
	case errRow:
		q.refused(block)
	case errTopic:
		q.refuseAll(block.Err)
	case errLater:
		// in both cases the batch may be in the log; its sequence number keeps it from being there twice
		q.unclear = q.unclear || errors.Is(block.Err, sarama.ErrNotEnoughReplicasAfterAppend) ||
			errors.Is(block.Err, sarama.ErrRequestTimedOut)
		q.retry(block.Err)
	default:
		q.unclear = true
		q.giveUp(block.Err)
	}
}

// unanswered is for a batch that was sent and has no answer.
func (q *partitionQueue) unanswered(err error) {
	q.unclear = true
	q.retry(err)
}

func (q *partitionQueue) acknowledged() {
	for _, r := range q.inFlight {
		r.outcome, r.err = acked, nil
	}
	q.sequence = int32((int64(q.sequence) + int64(len(q.inFlight))) % (math.MaxInt32 + 1))
	q.limit *= 2
	q.inFlight, q.retries, q.unclear, q.failure = nil, 0, false, nil
}

// refused looks for the row for which the record batch was refused. Nothing of it is in the log.
func (q *partitionQueue) refused(block *sarama.ProduceResponseBlock) {
	bad := map[int]bool{}
	for _, e := range block.RecordErrors {
		bad[int(e.BatchIndex)] = true
	}
	if len(q.inFlight) == 1 {
		bad[0] = true
	}
	if len(bad) == 0 {
		q.limit = max(1, len(q.inFlight)/2)
	}
	var again []*row
	for i, r := range q.inFlight {
		switch {
		case bad[i] && !q.blocked.has(r):
			r.fail(kafkaError(block.Err))
			q.blocked.add(r)
		default:
			again = append(again, r)
		}
	}
	q.back(append(again, q.rows...))
}

// refuseAll fails the first row of each key, and each without a key.
func (q *partitionQueue) refuseAll(err error) {
	for _, r := range slices.Concat(q.inFlight, q.rows) {
		if !q.blocked.has(r) {
			r.fail(kafkaError(err))
			q.blocked.add(r)
		}
	}
	q.back(nil)
}

// back puts rows back that were not taken, but for those of which a row before them has failed.
func (q *partitionQueue) back(rows []*row) {
	q.inFlight, q.rows, q.retries, q.unclear = nil, nil, 0, false
	for _, r := range rows {
		if !q.blocked.has(r) {
			q.rows = append(q.rows, r)
		}
	}
}

// retry sends inFlight again, or what was to be in it, unless that has been tried often enough. A batch that Kafka
// may have is sent until the answer is known: given up, and sent anew by another producer, it would be there twice.
func (q *partitionQueue) retry(err error) {
	q.retries++
	q.failure = err
	if q.retries >= maxRetries && !q.unclear {
		q.giveUp(err)
	}
}

func (q *partitionQueue) giveUp(err error) {
	q.err = fmt.Errorf("%s[%d]: %w", q.to.topic, q.to.partition, err)
}

// end says why rows are left, and tells it each of them. Rows that were left out because of one before them are not
// among these.
func (q *partitionQueue) end() error {
	switch {
	case q.err != nil || q.done():
	case q.unclear:
		q.giveUp(fmt.Errorf("it is not known whether Kafka has a batch: %w",
			cmp.Or(q.failure, context.DeadlineExceeded)))
	default:
		q.giveUp(fmt.Errorf("the publish time-out has passed: %w", cmp.Or(q.failure, context.DeadlineExceeded)))
	}
	for _, r := range slices.Concat(q.inFlight, q.rows) {
		r.err = q.err
	}
	return q.err
}

// kafkaError is a refusal as it stands in last_error.
func kafkaError(err error) error { return fmt.Errorf("Kafka refused it: %w", err) }

// errorKind is what an answer asks for.
type errorKind int

const (
	errNone  errorKind = iota
	errRow             // one of the rows can never be sent as it is
	errTopic           // none to this topic can
	errLater           // the same batch again, perhaps to another broker
	errOther           // not with this producer, or not known: the relay pauses
)

func classOf(err sarama.KError) errorKind {
	switch err {
	case sarama.ErrNoError, sarama.ErrDuplicateSequenceNumber:
		return errNone
	case sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidMessageSize,
		sarama.ErrMessageSetSizeTooLarge:
		return errRow
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic, sarama.ErrPolicyViolation:
		return errTopic
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable,
		sarama.ErrBrokerNotAvailable, sarama.ErrRequestTimedOut, sarama.ErrNetworkException,
		sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrUnknownTopicOrPartition,
		sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch,
		sarama.ErrThrottlingQuotaExceeded, sarama.ErrInvalidMessage:
		return errLater
	default:
		return errOther
	}
}
