package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// lane is the rows of a batch that go to one partition, in their order.
type lane struct {
	place    place
	rows     []*row // that have no outcome yet
	held     keys
	batch    []*row // the record batch on its way, or to be sent again; then it must stay as it is
	sequence int32  // of batch, or of the next one

	limit   int // rows in a record batch, to find one that is refused; 0 is no limit
	retries int // of batch
	begun   time.Time
	unclear bool  // Kafka may have batch
	failure error // of the last attempt
	err     error // why the lane was given up
}

// most attempts at one record batch that Kafka does not have; then the relay pauses and begins again from the table.
const maxRetries = 4

func newLanes(rows []*row, sequences map[place]int32) (lanes []*lane) {
	at := map[place]*lane{}
	for _, r := range rows {
		l := at[r.place()]
		if l == nil {
			l = &lane{place: r.place(), held: keys{}, sequence: sequences[r.place()]}
			at[r.place()] = l
			lanes = append(lanes, l)
		}
		l.rows = append(l.rows, r)
	}
	return lanes
}

func (l *lane) done() bool { return len(l.rows) == 0 && len(l.batch) == 0 }

// openLanes are those with something to send: any rows until the publish time-out has passed, then batches that Kafka may have.
func openLanes(lanes []*lane, until time.Time) (open []*lane) {
	late := !time.Now().Before(until)
	for _, l := range lanes {
		if l.err == nil && !l.done() && (l.unclear || !late) {
			open = append(open, l)
		}
	}
	return open
}

// pause waits before another attempt, if that is all there is to do. It reports whether to go on.
func pause(ctx context.Context, lanes []*lane) bool {
	retries := math.MaxInt
	for _, l := range lanes {
		retries = min(retries, l.retries)
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
func (l *lane) cut(maxBytes int) {
	if len(l.batch) > 0 {
		return
	}
	n, size := 0, recordBatchOverhead
	for n < len(l.rows) && (l.limit == 0 || n < l.limit) {
		size += l.rows[n].size
		if n > 0 && size > maxBytes {
			break
		}
		n++
	}
	l.batch, l.rows, l.begun = l.rows[:n:n], l.rows[n:], time.Now()
}

// recordBatchOverhead is what a record batch takes beside its records.
const recordBatchOverhead = 61

// answer is Kafka's for batch.
func (l *lane) answer(block *sarama.ProduceResponseBlock) {
	switch kind := classOf(block.Err); kind {
	case errNone:
		l.acknowledged()
	case errRow:
		l.refused(block)
	case errTopic:
		l.refuseAll(block.Err)
	case errLater:
		// in both cases the batch may be in the log; its sequence number keeps it from being there twice
		l.unclear = l.unclear || errors.Is(block.Err, sarama.ErrNotEnoughReplicasAfterAppend) || errors.Is(block.Err, sarama.ErrRequestTimedOut)
		l.retry(block.Err)
	default:
		l.unclear = true
		l.giveUp(block.Err)
	}
}

// unanswered is for a batch that was sent and has no answer.
func (l *lane) unanswered(err error) {
	l.unclear = true
	l.retry(err)
}

func (l *lane) acknowledged() {
	for _, r := range l.batch {
		r.outcome, r.err = acked, nil
	}
	l.sequence = int32((int64(l.sequence) + int64(len(l.batch))) % (math.MaxInt32 + 1))
	l.limit *= 2
	l.batch, l.retries, l.unclear, l.failure = nil, 0, false, nil
}

// refused looks for the row for which the record batch was refused. Nothing of it is in the log.
func (l *lane) refused(block *sarama.ProduceResponseBlock) {
	bad := map[int]bool{}
	for _, e := range block.RecordErrors {
		bad[int(e.BatchIndex)] = true
	}
	if len(l.batch) == 1 {
		bad[0] = true
	}
	if len(bad) == 0 {
		l.limit = max(1, len(l.batch)/2)
	}
	var again []*row
	for i, r := range l.batch {
		switch {
		case bad[i] && !l.held.held(r):
			r.fail(kafkaError(block.Err))
			l.held.hold(r)
		default:
			again = append(again, r)
		}
	}
	l.back(append(again, l.rows...))
}

// refuseAll fails the first row of each key, and each without a key.
func (l *lane) refuseAll(err error) {
	for _, r := range slices.Concat(l.batch, l.rows) {
		if !l.held.held(r) {
			r.fail(kafkaError(err))
			l.held.hold(r)
		}
	}
	l.back(nil)
}

// back puts rows back that were not taken, but for those of which a row before them has failed.
func (l *lane) back(rows []*row) {
	l.batch, l.rows, l.retries, l.unclear = nil, nil, 0, false
	for _, r := range rows {
		if !l.held.held(r) {
			l.rows = append(l.rows, r)
		}
	}
}

// retry sends batch again, or what was to be in it, unless that has been tried often enough. A batch that Kafka may have is sent until the
// answer is known: given up, and sent anew by another producer, it would be there twice.
func (l *lane) retry(err error) {
	l.retries++
	l.failure = err
	if l.retries >= maxRetries && !l.unclear {
		l.giveUp(err)
	}
}

func (l *lane) giveUp(err error) {
	l.err = fmt.Errorf("%s[%d]: %w", l.place.topic, l.place.partition, err)
}

// end says why rows are left, and tells it each of them. Rows that were left out because of one before them are not among these.
func (l *lane) end() error {
	switch {
	case l.err != nil || l.done():
	case l.unclear:
		l.giveUp(fmt.Errorf("it is not known whether Kafka has a batch: %w", cmp.Or(l.failure, context.DeadlineExceeded)))
	default:
		l.giveUp(fmt.Errorf("the publish time-out has passed: %w", cmp.Or(l.failure, context.DeadlineExceeded)))
	}
	for _, r := range slices.Concat(l.batch, l.rows) {
		r.err = l.err
	}
	return l.err
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
	case sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidMessageSize, sarama.ErrMessageSetSizeTooLarge:
		return errRow
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic, sarama.ErrPolicyViolation:
		return errTopic
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrBrokerNotAvailable, sarama.ErrRequestTimedOut,
		sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrUnknownTopicOrPartition, sarama.ErrKafkaStorageError,
		sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrThrottlingQuotaExceeded, sarama.ErrInvalidMessage:
		return errLater
	default:
		return errOther
	}
}
