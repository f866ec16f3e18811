package crashtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// step is a point in the life of a message.
type step string

const (
	nowhere            step = ""
	beforeBegin        step = "before BEGIN"
	afterBegin         step = "after BEGIN, before the record"
	afterRecord        step = "after the record"
	inHandler          step = "in the handler"
	afterHandler       step = "after the handler"
	commitUnsent       step = "at COMMIT, not sent"
	commitSent         step = "at COMMIT, sent"
	commitAnswered     step = "at COMMIT, answered"
	afterCommit        step = "between COMMIT and mark"
	offsetCommitUnsent step = "after the mark, offset commit not sent"
	offsetCommitSent   step = "offset commit sent"
	exiting            step = "os.Exit in the handler"
)

func (s step) beforeHandler() bool { return s == beforeBegin || s == afterBegin || s == afterRecord }

const (
	commitText  = "commit"
	recordTable = "processed_event"
	apiCommit   = 8 // Kafka's number of OffsetCommit
)

// striker strikes once, when one event is at one step of its life. It stands in the store, around the handler, and in
// the connections to the database and to Kafka: nothing of the code under test is changed.
type striker struct {
	step   step
	event  string
	offset int64 // of the event
	blow   func(step)

	inStore   atomic.Bool // the event is in the store
	committed atomic.Bool // its transaction is committed
	struck    atomic.Bool
}

// at strikes if the event is at that step.
func (s *striker) at(now step) bool {
	if s.step != now || !s.struck.CompareAndSwap(false, true) {
		return false
	}
	s.blow(now)
	return true
}

// inTransaction is at, for what sees the transactions of all events.
func (s *striker) inTransaction(now step) bool { return s.inStore.Load() && s.at(now) }

// store is a pgxstore.Store with a striker in it.
type store struct {
	*pgxstore.Store
	*striker
}

func (s store) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, pgx.Tx) error) (bool, error) {
	if key.Event != s.event {
		return s.Store.Once(ctx, key, fn)
	}
	s.inStore.Store(true)
	defer s.inStore.Store(false)
	s.at(beforeBegin)
	return s.Store.Once(ctx, key, func(ctx context.Context, tx pgx.Tx) error {
		s.at(afterRecord)
		if err := fn(ctx, tx); err != nil {
			return err
		}
		s.at(afterHandler)
		return nil
	})
}

// outermost is the outermost link of the chain: when it sees that an effect is committed, the runner does not know yet.
func (s *striker) outermost(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		err := next.Handle(ctx, msg)
		if err == nil && msg.EventID == s.event {
			s.at(afterCommit)
			s.committed.Store(true)
		}
		return err
	})
}

// statement is called before and after a statement is written to the database.
func (s *striker) statement(sql string, sent bool) bool {
	switch {
	case !sent && isRecord(sql):
		return s.inTransaction(afterBegin)
	case !sent && sql == commitText:
		return s.inTransaction(commitUnsent)
	case sql == commitText:
		return s.inTransaction(commitSent)
	}
	return false
}

// request is called before and after a request is written to Kafka. It knows the offset commit with the event's mark in
// it.
func (s *striker) request(frame []byte, sent bool) {
	if !s.committed.Load() || apiKey(frame) != apiCommit || !s.hasMark(frame) {
		return
	}
	if sent {
		s.at(offsetCommitSent)
	} else {
		s.at(offsetCommitUnsent)
	}
}

// hasMark looks for an offset behind the event's: several marks may be committed as one. No other number in the frame
// is as long.
func (s *striker) hasMark(frame []byte) bool {
	for mark := s.offset + 1; mark < s.offset+100; mark++ {
		if bytes.Contains(frame, binary.BigEndian.AppendUint64(nil, uint64(mark))) {
			return true
		}
	}
	return false
}
