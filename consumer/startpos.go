package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// Start says where a group begins to read a partition for which it has no committed offset. The zero value is the oldest message.
type Start struct {
	newest bool
	at     time.Time
}

// FromNewest begins behind the messages that are there when the partition is assigned for the first time. That position is
// committed at once, so that what is produced while no member runs is not skipped later.
func FromNewest() Start { return Start{newest: true} }

// FromTime begins at the first message whose timestamp is t or later, or behind all if there is none.
func FromTime(t time.Time) Start { return Start{at: t} }

// oldest reports whether it is the default, which needs no look-up.
func (s Start) oldest() bool { return !s.newest && s.at.IsZero() }

// query is what ListOffsets is asked for.
func (s Start) query() int64 {
	if s.newest {
		return sarama.OffsetNewest
	}
	return s.at.UnixMilli()
}

// OutOfRange says what happens where the committed offset is not in the log any more: records were deleted before they were read,
// or the topic was created again. Hooks.OutOfRange tells of it.
type OutOfRange int

const (
	// ToOldest goes on at the oldest message that is there: nothing that can still be read is skipped.
	ToOldest OutOfRange = iota
	// ToNewest goes on behind all messages that are there.
	ToNewest
	// Fail ends the Consumer: Run returns an error that wraps ErrOutOfRange.
	Fail
)

// ErrOutOfRange is wrapped by Run's error where Topic.OutOfRange is Fail.
var ErrOutOfRange = errors.New("einmal: the committed offset is out of range")

// position sets where the claims of a session start, as far as sarama would start elsewhere. It is called in Setup, where alone
// that is possible: in cooperative mode partitions come later, so New refuses what needs it there.
func (s *session) position(sess sarama.ConsumerGroupSession) error {
	moved := false
	for name, partitions := range sess.Claims() {
		t := s.topics[name]
		for _, p := range partitions {
			offset, move, err := s.startOf(t, p)
			if err != nil {
				return err
			}
			if move {
				moved = true
				sess.ResetOffset(name, p, offset, "")
				sess.MarkOffset(name, p, offset, "")
			}
		}
	}
	if moved && !within(commitTimeout, sess.Commit) {
		s.log.Warn("einmal: committing the start positions was not answered in time")
	}
	return nil
}

// startOf returns where the partition must start, and whether that is not where sarama would.
func (s *session) startOf(t *topic, p int32) (offset int64, move bool, err error) {
	if s.recreated[t.name] {
		s.log.Error("einmal: the topic was created again, it is read from its start", slog.String(attrTopic, t.name), partitionAttr(p))
		return 0, true, nil
	}
	committed, known := s.committed[t.name][p]
	switch {
	case !known && t.start.oldest() && t.outOfRange == ToOldest:
		return 0, false, nil // where sarama starts is right
	case !known:
		return 0, false, fmt.Errorf("the committed offset of %s is not known, and Topic.Start or Topic.OutOfRange needs it", partitionName(t.name, p))
	case committed < 0:
		if t.start.oldest() {
			return 0, false, nil
		}
		offset, err = s.lookUp(t.name, p, t.start.query())
		return offset, err == nil, err
	case t.outOfRange == ToOldest:
		return 0, false, nil
	}
	oldest, err := s.lookUp(t.name, p, sarama.OffsetOldest)
	if err != nil {
		return 0, false, err
	}
	newest, err := s.lookUp(t.name, p, sarama.OffsetNewest)
	if err != nil || committed >= oldest && committed <= newest {
		return 0, false, err
	}
	if t.outOfRange == Fail {
		err = fmt.Errorf("%w: %s is committed at %d, its log has %d to %d: reset the group's offset, or set Topic.OutOfRange",
			ErrOutOfRange, partitionName(t.name, p), committed, oldest, newest)
		s.stop(err)
		return 0, false, err
	}
	s.hooks.outOfRange(t.name, p, newest)
	return newest, true, nil
}

// lookUp asks for an offset. A time beyond the last message has none: then it is the end.
func (s *session) lookUp(topic string, p int32, query int64) (int64, error) {
	offset, err := s.client.GetOffset(topic, p, query)
	if err == nil && offset < 0 {
		offset, err = s.client.GetOffset(topic, p, sarama.OffsetNewest)
	}
	if err != nil {
		return 0, fmt.Errorf("look up an offset of %s: %w", partitionName(topic, p), err)
	}
	return offset, nil
}
