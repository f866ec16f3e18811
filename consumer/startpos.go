package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Start says where a group begins to read a partition for which it has no committed offset. The zero value is the
// oldest message.
type Start struct {
	newest bool
	at     time.Time
}

// FromNewest begins behind the messages that are there when the partition is assigned for the first time. That position
// is committed at once, so that what is produced while no member runs is not skipped later. What belongs to a
// transaction that is open then comes when it is committed. A partition that is added to the topic later is read from
// its beginning: all of it is new.
func FromNewest() Start { return Start{newest: true} }

// FromTime begins at the first message whose timestamp is t or later, or behind all if there is none.
func FromTime(t time.Time) Start { return Start{at: t} }

// oldest reports whether it is the default, which needs no look-up.
func (s Start) oldest() bool { return !s.newest && s.at.IsZero() }

// OutOfRange says what happens where the committed offset is not in the log any more: records were deleted before they
// were read, or the topic was created again. Hooks.OutOfRange tells of it.
type OutOfRange int

const (
	// ToOldest goes on at the oldest message that is there: nothing that can still be read is skipped.
	ToOldest OutOfRange = iota
	// ToNewest goes on behind all messages that are there. The log says how many offsets are skipped so.
	ToNewest
	// Fail ends the Consumer: Run returns an error that wraps ErrOutOfRange.
	Fail
)

// ErrOutOfRange is wrapped by Run's error where Topic.OutOfRange is Fail.
var ErrOutOfRange = errors.New("einmal: the committed offset is out of range")

// position sets where the claims of a session start, as far as sarama would start elsewhere. It is called in Setup,
// where alone that is possible: in cooperative mode partitions come later, so New refuses what needs it there.
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
				moveTo(sess, name, p, offset, s.startNote(t, p))
			}
		}
	}
	if moved && !within(commitTimeout, sess.Commit) {
		s.log.Warn("einmal: committing the start positions was not answered in time")
	}
	return nil
}

// moveTo makes offset the one that is committed next, whatever is committed now.
func moveTo(sess sarama.ConsumerGroupSession, topic string, partition int32, offset int64, note string) {
	sess.ResetOffset(topic, partition, offset, note) // goes back only
	sess.MarkOffset(topic, partition, offset, note)  // goes forward only
}

// startOf returns where the partition must start, and whether that is not where sarama would.
func (s *session) startOf(t *topic, p int32) (offset int64, move bool, err error) {
	if s.recreated[t.name] {
		s.tellRecreated(t, p)
		return 0, true, nil
	}
	committed, known := s.committed[t.name][p]
	switch {
	case !known && t.start.oldest() && t.outOfRange == ToOldest:
		return 0, false, nil // where sarama starts is right
	case !known:
		return 0, false, fmt.Errorf("the committed offset of %s is not known, and Topic.Start or Topic.OutOfRange needs it",
			partitionName(t.name, p))
	case committed.offset < 0:
		if t.start.oldest() {
			return 0, false, nil // sarama starts there, and the claim commits it
		}
		offset, err = s.firstStart(t, p)
		return offset, err == nil, err
	case t.outOfRange == ToOldest:
		return 0, false, nil
	}
	return s.inRange(t, p, committed.offset)
}

// firstStart returns where a partition is read for the first time.
func (s *session) firstStart(t *topic, p int32) (int64, error) {
	switch {
	case !t.start.newest:
		return s.lookUp(t.name, p, t.start.at.UnixMilli())
	case s.isAdded(t, p):
		s.log.Info("einmal: a partition was added to the topic, it is read from its beginning",
			slog.String(attrTopic, t.name), partitionAttr(p))
		return s.lookUp(t.name, p, sarama.OffsetOldest)
	default:
		return s.client.stableEnd(t.name, p)
	}
}

// inRange applies OutOfRange to an offset that the log does not have.
func (s *session) inRange(t *topic, p int32, committed int64) (offset int64, move bool, err error) {
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
	if offset, err = s.client.stableEnd(t.name, p); err != nil {
		return 0, false, err
	}
	s.tellOutOfRange(t, p, committed, offset, offset-oldest)
	return offset, true, nil
}

// tellOutOfRange tells that a partition starts at offset and not where it was committed. skipped offsets are in the log
// and passed over.
func (s *session) tellOutOfRange(t *topic, p int32, committed, offset, skipped int64) {
	s.log.Error("einmal: the committed offset is out of range: records were deleted before they were read, or the topic was created again",
		slog.String(attrTopic, t.name), partitionAttr(p), slog.Int64("committed", committed), slog.Int64(attrOffset, offset),
		slog.Int64("skipped", skipped))
	t.totals.count(func(t *TopicTotals) { t.OutOfRange++ })
	s.hooks.outOfRange(t.name, p, offset)
}

// tellRecreated tells that a partition starts anew, since its topic was created again: what was committed is an offset of
// the old one.
func (s *session) tellRecreated(t *topic, p int32) {
	s.log.Error("einmal: the topic was created again, it is read from its start", slog.String(attrTopic, t.name),
		partitionAttr(p))
	t.totals.count(func(t *TopicTotals) { t.OutOfRange++ })
	s.hooks.outOfRange(t.name, p, 0)
}

// begin finds out where a claim begins that sarama starts at the oldest message, and commits that: nothing was
// committed, or it is out of range. What is committed can be missed when it is gone; and a committed offset beyond the
// end of the log (a topic that was created again) would swallow all marks. It reports false if the session ends
// meanwhile.
func (s *session) begin(cl *claim) bool {
	if cl.first >= 0 {
		return true
	}
	oldest, err := s.client.GetOffset(cl.topic.name, cl.partition, sarama.OffsetOldest)
	if err != nil {
		return false
	}
	moveTo(cl.session, cl.topic.name, cl.partition, oldest, cl.note)
	cl.mu.Lock()
	cl.first = oldest
	cl.commits.marked(oldest, time.Now())
	cl.mu.Unlock()
	if cl.committed >= 0 {
		s.tellOutOfRange(cl.topic, cl.partition, cl.committed, oldest, 0)
	}
	return true
}

// notePartitions is what the metadata of a committed offset begin with where the group began at the newest message: the
// number of partitions that the topic had then. Those that were added later are read from their beginning, although
// nothing is committed for them either. Members that begin at the same time see each other's offsets, so that something
// is committed does not suffice to tell.
const notePartitions = "partitions="

// startNote is the note for a partition that starts.
func (s *session) startNote(t *topic, p int32) string {
	if note := s.committed[t.name][p].note; note != "" || !t.start.newest {
		return note
	}
	n, known := s.firstPartitions(t.name)
	if !known {
		all, err := s.client.Partitions(t.name)
		if err != nil {
			return ""
		}
		n = len(all)
	}
	return notePartitions + strconv.Itoa(n)
}

// firstPartitions returns how many partitions the topic had when the group began to read it. Where no committed offset
// says so, it is the last partition that has one that tells: Kafka adds partitions behind it.
func (s *session) firstPartitions(topic string) (n int, known bool) {
	last := -1
	for p, c := range s.committed[topic] {
		if c.offset >= 0 {
			last = max(last, int(p))
		}
		text, ok := strings.CutPrefix(c.note, notePartitions)
		if first, err := strconv.Atoi(text); ok && err == nil && (!known || first < n) {
			n, known = first, true
		}
	}
	if !known {
		return last + 1, last >= 0
	}
	return n, known
}

// isAdded reports whether a partition came to the topic after the group had begun to read it.
func (s *session) isAdded(t *topic, p int32) bool {
	n, known := s.firstPartitions(t.name)
	return known && int(p) >= n
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
