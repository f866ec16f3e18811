package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// topicWatch looks after the topics of a membership while a session runs: topics that come, go, grow, or are created
// again under the same name. sarama's group notices growth only in its leader, and nothing of the rest.
type topicWatch struct {
	*membership
	began map[string]int // the partitions of each topic when the session began; the topics that it consumes
	end   context.CancelFunc
}

// existing returns the topics that can be consumed now: one that is missing would keep all others from being consumed.
// It reports a topic when it goes and when it comes back.
func (m *membership) existing() []string {
	var names []string
	all := slices.Sorted(maps.Keys(m.topics))
	_ = m.client.RefreshMetadata(all...) // one request; what is wrong with a topic is told below
	for _, name := range all {
		reason := ""
		partitions, err := m.client.Partitions(name) // asks again for a topic that no broker has told about
		gone := errors.Is(err, sarama.ErrUnknownTopicOrPartition)
		switch {
		case gone:
			reason = "no broker knows it: it was deleted, or is not known everywhere yet"
		case err != nil || len(partitions) == 0:
			reason = "the brokers tell no partition of it"
		case len(partitions) < m.partitions[name]:
			reason = fmt.Sprintf("the brokers tell %d of its %d partitions", len(partitions), m.partitions[name])
		default:
			m.partitions[name] = len(partitions)
		}
		if m.unread.note(name, -1, reason != "", reason) {
			if reason != "" {
				m.log.Error("einmal: a topic cannot be read, the others go on without it; it is asked for again",
					slog.String(attrTopic, name), slog.String("reason", reason))
			} else {
				m.log.Info("einmal: a topic can be read again", slog.String(attrTopic, name))
			}
		}
		if gone {
			delete(m.partitions, name)
			continue
		}
		names = append(names, name)
	}
	return names
}

// missingPoll is how soon a topic is asked for again that brokers did not know; then after twice as long each time.
// Their answer can be one of a moment: of a broker that has just started, or has not heard of the topic yet.
const missingPoll = time.Second

// topicPoll says when the topics are looked at again.
type topicPoll struct {
	usual time.Duration
	soon  time.Duration // if a topic is missing now
}

// next returns the pause before the next look, on average: it grows as long as a topic is missing.
func (p *topicPoll) next(missing bool) time.Duration {
	if !missing {
		p.soon = missingPoll
		return p.usual
	}
	wait := min(p.usual, p.soon)
	p.soon *= 2
	return wait
}

// run looks at the topics again and again until ctx is done.
func (w *topicWatch) run(ctx context.Context) {
	grown, poll := 0, topicPoll{w.sarama.Metadata.RefreshFrequency, missingPoll}
	for {
		if !pause(ctx, jitter(poll.next(w.unread.topics()))) {
			return
		}
		lacked := w.unread.topics()
		now := w.count()
		lacked = lacked && !w.unread.topics()
		switch {
		case !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(w.began))):
			w.log.Info("einmal: topics came or went, joining again")
			w.end()
			return
		case w.changedIDs():
			w.end() // Setup of the next session sets the positions
			return
		case !maps.Equal(now, w.began):
			// The leader makes the group rebalance. If the session goes on, there is none that noticed: Kafka does not tell a
			// static member that it is leader when it has restarted (KAFKA-13435).
			if grown++; grown > 1 || lacked { // what lacked when the group joined is no growth that others notice
				w.log.Info("einmal: partitions were added, and the group has not noticed: joining again")
				w.strategy.nudge(strconv.FormatInt(time.Now().UnixNano(), 36))
				w.end()
				return
			}
		}
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(max(1, d)) //nolint:gosec // jitter is no secret
}

// count returns the topics that exist and their partitions.
func (m *membership) count() map[string]int {
	n := map[string]int{}
	for _, name := range m.existing() {
		if ps, err := m.client.Partitions(name); err == nil {
			n[name] = len(ps)
		}
	}
	return n
}

// changedIDs reports whether a topic was created again under its name.
func (w *topicWatch) changedIDs() bool {
	ids, err := topicIDs(w.client, w.topics)
	if err != nil {
		return false // asked again soon
	}
	for name, id := range ids {
		if w.isOther(name, id) {
			w.log.Error("einmal: the topic was created again under the same name", slog.String(attrTopic, name))
			return true
		}
	}
	return false
}

// isOther reports whether id is not the one that the topic had in the last session. A zero id is one that is not known.
func (r *running) isOther(name string, id TopicID) bool {
	before := r.ids[name]
	return before != (TopicID{}) && id != (TopicID{}) && id != before
}

// learnIDs asks for the topics' ids and notes which topics were created again since the session before: what was
// committed for them means nothing now.
func (s *session) learnIDs(claims map[string][]int32) error {
	ids, err := topicIDs(s.client, s.topics)
	if err != nil {
		return err
	}
	s.recreated = map[string]bool{}
	for name, id := range ids {
		s.recreated[name] = s.isOther(name, id)
		s.ids[name] = id
		if s.recreated[name] {
			delete(s.partitions, name) // it may have fewer
		}
	}
	for name := range claims {
		if _, known := s.ids[name]; !known {
			return fmt.Errorf("topic %q: %w", name, sarama.ErrUnknownTopicOrPartition)
		}
	}
	return nil
}

// topicID returns the id of a topic, zero if it is not known.
func (s *session) topicID(name string) TopicID { return s.ids[name] }
