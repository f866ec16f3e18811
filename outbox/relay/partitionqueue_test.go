package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

func newQueue(rows int) *partitionQueue {
	q := &partitionQueue{to: topicPartition{"t", 0}, blocked: blockedKeys{}, sequence: 7}
	for i := range rows {
		q.rows = append(q.rows, &row{id: int64(i), topic: "t", key: fmt.Append(nil, "key ", i), size: 10})
	}
	q.cut(1 << 20)
	return q
}

// What an answer of Kafka's leaves: whether Kafka may have the batch, whether the queue goes on with it as it is, and
// whether its rows are done. The sequence number moves on for what Kafka has, and for nothing else.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err                   sarama.KError
		unclear, again, given bool
		outcome               outcome
	}{
		{sarama.ErrNoError, false, false, false, acked},
		{sarama.ErrDuplicateSequenceNumber, false, false, false, acked},
		{sarama.ErrRequestTimedOut, true, true, false, notSent},
		{sarama.ErrNotEnoughReplicasAfterAppend, true, true, false, notSent},
		{sarama.ErrNotEnoughReplicas, false, true, false, notSent},
		{sarama.ErrNotLeaderForPartition, false, true, false, notSent},
		{sarama.ErrOutOfOrderSequenceNumber, true, false, true, notSent},
		{sarama.ErrUnknownProducerID, true, false, true, notSent},
		{sarama.ErrInvalidProducerEpoch, true, false, true, notSent},
		{sarama.ErrUnknown, true, false, true, notSent},
		{sarama.ErrTopicAuthorizationFailed, false, false, false, failed},
	} {
		q := newQueue(2)
		rows := q.inFlight
		q.answer(&sarama.ProduceResponseBlock{Err: c.err})
		if q.unclear != c.unclear || (q.err != nil) != c.given || rows[0].outcome != c.outcome ||
			rows[1].outcome != c.outcome {
			t.Errorf("%v: unclear %v, given up %v, outcome %v", c.err, q.unclear, q.err, rows[0].outcome)
		}
		if again := q.err == nil && len(q.inFlight) == 2; again != c.again {
			t.Errorf("%v: sent again: %v", c.err, again)
		}
		if moved := q.sequence == 9; moved != (c.outcome == acked) {
			t.Errorf("%v: the next sequence number is %d", c.err, q.sequence)
		}
	}
}

// What Kafka may have stays so, whatever it answers later, until it is acknowledged; it is tried again and again. What
// Kafka does not have is given up soon.
func TestUnclearStaysUnclear(t *testing.T) {
	t.Parallel()
	q := newQueue(2)
	later := time.Now().Add(time.Hour)
	q.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrRequestTimedOut})
	for range 3 * maxRetries {
		q.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNotLeaderForPartition})
	}
	if !q.unclear || len(openQueues([]*partitionQueue{q}, later)) != 1 ||
		len(openQueues([]*partitionQueue{q}, time.Now())) != 1 {
		t.Errorf("it is given up: %+v", q)
	}
	before := q.inFlight
	q.cut(1)
	if len(q.inFlight) != len(before) {
		t.Error("it is sent again with other rows")
	}
	if err := q.end(); err == nil || before[0].err == nil || !errors.Is(err, sarama.ErrNotLeaderForPartition) {
		t.Errorf("in the end: %v", err)
	}
	q = newQueue(2)
	if len(openQueues([]*partitionQueue{q}, later)) != 1 || len(openQueues([]*partitionQueue{q}, time.Now())) != 0 {
		t.Error("what was not sent is sent after the publish time-out, or not before it")
	}
	for range maxRetries {
		q.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNotLeaderForPartition})
	}
	if q.unclear || len(openQueues([]*partitionQueue{q}, later)) != 0 {
		t.Errorf("it is not given up: %+v", q)
	}
}

// A refused batch of one row is that row's, whether Kafka names it or not; of several, those that it names; else the
// batch is halved, down to one.
func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	refused := sarama.ErrMessageSizeTooLarge
	q := newQueue(1)
	r := q.inFlight[0]
	q.answer(&sarama.ProduceResponseBlock{Err: refused})
	if r.outcome != failed || !q.done() {
		t.Errorf("of one: %v", r.outcome)
	}
	q = newQueue(3)
	rows := q.inFlight
	q.answer(&sarama.ProduceResponseBlock{Err: refused,
		RecordErrors: []sarama.ProduceResponseRecordError{{BatchIndex: 1}}})
	if rows[0].outcome != notSent || rows[1].outcome != failed || len(q.rows) != 2 || q.limit != 0 {
		t.Errorf("one that is named: %v %v, %d left", rows[0].outcome, rows[1].outcome, len(q.rows))
	}
	q = newQueue(3)
	rows = q.inFlight
	rows[2].key = rows[0].key
	q.answer(&sarama.ProduceResponseBlock{Err: refused, RecordErrors: []sarama.ProduceResponseRecordError{{BatchIndex: 0},
		{BatchIndex: 2}}})
	if rows[0].outcome != failed || rows[1].outcome != notSent || rows[2].outcome != notSent || len(q.rows) != 1 {
		t.Errorf("two of one key: %v %v %v, %d left", rows[0].outcome, rows[1].outcome, rows[2].outcome, len(q.rows))
	}
	q = newQueue(5)
	for _, want := range []int{2, 1} {
		q.answer(&sarama.ProduceResponseBlock{Err: refused})
		if q.cut(1 << 20); len(q.inFlight) != want || q.sequence != 7 {
			t.Errorf("%d rows are sent, want %d; sequence %d", len(q.inFlight), want, q.sequence)
		}
	}
	q.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNoError})
	if q.cut(1 << 20); len(q.inFlight) != 2 {
		t.Errorf("behind what was taken %d rows are sent, want 2", len(q.inFlight))
	}
}

// The pause before another attempt grows, and ends with the context.
func TestPause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	q := newQueue(1)
	if q.retries = 1000; !pause(ctx, []*partitionQueue{q}) {
		t.Error("it does not go on")
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, queues := range [][]*partitionQueue{{newQueue(1), q}, {q, newQueue(1)}} {
			if !pause(t.Context(), queues) || time.Since(began) > 0 {
				t.Errorf("what was not tried yet waits for %v", time.Since(began))
			}
		}
	})
	cancel()
	if q.retries = 0; pause(ctx, []*partitionQueue{q}) {
		t.Error("it goes on after the end")
	}
}
