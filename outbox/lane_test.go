package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

func newLane(rows int) *lane {
	l := &lane{place: place{"t", 0}, held: keys{}, sequence: 7}
	for i := range rows {
		l.rows = append(l.rows, &row{id: int64(i), topic: "t", key: fmt.Append(nil, "key ", i), size: 10})
	}
	l.cut(1 << 20)
	return l
}

// What an answer of Kafka's leaves: whether Kafka may have the batch, whether the lane goes on with it as it is, and whether its rows are done. The
// sequence number moves on for what Kafka has, and for nothing else.
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
		l := newLane(2)
		rows := l.batch
		l.answer(&sarama.ProduceResponseBlock{Err: c.err})
		if l.unclear != c.unclear || (l.err != nil) != c.given || rows[0].outcome != c.outcome || rows[1].outcome != c.outcome {
			t.Errorf("%v: unclear %v, given up %v, outcome %v", c.err, l.unclear, l.err, rows[0].outcome)
		}
		if again := l.err == nil && len(l.batch) == 2; again != c.again {
			t.Errorf("%v: sent again: %v", c.err, again)
		}
		if moved := l.sequence == 9; moved != (c.outcome == acked) {
			t.Errorf("%v: the next sequence number is %d", c.err, l.sequence)
		}
	}
}

// What Kafka may have stays so, whatever it answers later, until it is acknowledged; it is tried again and again. What Kafka does not have is given up soon.
func TestUnclearStaysUnclear(t *testing.T) {
	t.Parallel()
	l := newLane(2)
	later := time.Now().Add(time.Hour)
	l.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrRequestTimedOut})
	for range 3 * maxRetries {
		l.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNotLeaderForPartition})
	}
	if !l.unclear || len(openLanes([]*lane{l}, later)) != 1 || len(openLanes([]*lane{l}, time.Now())) != 1 {
		t.Errorf("it is given up: %+v", l)
	}
	before := l.batch
	l.cut(1)
	if len(l.batch) != len(before) {
		t.Error("it is sent again with other rows")
	}
	if err := l.end(); err == nil || before[0].err == nil || !errors.Is(err, sarama.ErrNotLeaderForPartition) {
		t.Errorf("in the end: %v", err)
	}
	l = newLane(2)
	if len(openLanes([]*lane{l}, later)) != 1 || len(openLanes([]*lane{l}, time.Now())) != 0 {
		t.Error("what was not sent is sent after the publish time-out, or not before it")
	}
	for range maxRetries {
		l.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNotLeaderForPartition})
	}
	if l.unclear || len(openLanes([]*lane{l}, later)) != 0 {
		t.Errorf("it is not given up: %+v", l)
	}
}

// A refused batch of one row is that row's, whether Kafka names it or not; of several, those that it names; else the batch is halved, down to one.
func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	refused := sarama.ErrMessageSizeTooLarge
	l := newLane(1)
	r := l.batch[0]
	l.answer(&sarama.ProduceResponseBlock{Err: refused})
	if r.outcome != failed || !l.done() {
		t.Errorf("of one: %v", r.outcome)
	}
	l = newLane(3)
	rows := l.batch
	l.answer(&sarama.ProduceResponseBlock{Err: refused, RecordErrors: []sarama.ProduceResponseRecordError{{BatchIndex: 1}}})
	if rows[0].outcome != notSent || rows[1].outcome != failed || len(l.rows) != 2 || l.limit != 0 {
		t.Errorf("one that is named: %v %v, %d left", rows[0].outcome, rows[1].outcome, len(l.rows))
	}
	l = newLane(3)
	rows = l.batch
	rows[2].key = rows[0].key
	l.answer(&sarama.ProduceResponseBlock{Err: refused, RecordErrors: []sarama.ProduceResponseRecordError{{BatchIndex: 0}, {BatchIndex: 2}}})
	if rows[0].outcome != failed || rows[1].outcome != notSent || rows[2].outcome != notSent || len(l.rows) != 1 {
		t.Errorf("two of one key: %v %v %v, %d left", rows[0].outcome, rows[1].outcome, rows[2].outcome, len(l.rows))
	}
	l = newLane(5)
	for _, want := range []int{2, 1} {
		l.answer(&sarama.ProduceResponseBlock{Err: refused})
		if l.cut(1 << 20); len(l.batch) != want || l.sequence != 7 {
			t.Errorf("%d rows are sent, want %d; sequence %d", len(l.batch), want, l.sequence)
		}
	}
	l.answer(&sarama.ProduceResponseBlock{Err: sarama.ErrNoError})
	if l.cut(1 << 20); len(l.batch) != 2 {
		t.Errorf("behind what was taken %d rows are sent, want 2", len(l.batch))
	}
}

// The pause before another attempt grows, and ends with the context.
func TestPause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	l := newLane(1)
	if l.retries = 1000; !pause(ctx, []*lane{l}) {
		t.Error("it does not go on")
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, lanes := range [][]*lane{{newLane(1), l}, {l, newLane(1)}} {
			if !pause(t.Context(), lanes) || time.Since(began) > 0 {
				t.Errorf("what was not tried yet waits for %v", time.Since(began))
			}
		}
	})
	cancel()
	if l.retries = 0; pause(ctx, []*lane{l}) {
		t.Error("it goes on after the end")
	}
}
