package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// RefreshMetadata is the client's, but that partitions without a leader are no error: it would keep the whole group
// from joining. They wait by themselves, the others are consumed.
func (g *groupClient) RefreshMetadata(topics ...string) error {
	return exceptLeaderless(g.Client.RefreshMetadata(topics...))
}

// GetOffset is the client's, but while a session runs it asks again until there is an answer: an error would end the
// session for all partitions.
func (g *groupClient) GetOffset(topic string, partition int32, at int64) (int64, error) {
	for {
		offset, err := g.Client.GetOffset(topic, partition, at)
		g.mu.Lock()
		again := g.askAgain
		g.mu.Unlock()
		if err == nil || again == nil || !again(&sarama.ConsumerError{Topic: topic, Partition: partition, Err: err}) {
			return offset, err
		}
	}
}

// askAgain tells the client how to wait for offsets during a session.
func (s *session) askAgain(sess sarama.ConsumerGroupSession) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	s.client.askAgain = func(err error) bool {
		if sess.Context().Err() == nil {
			s.errors.warn(err)
		}
		return pause(sess.Context(), leaderPoll)
	}
}

// exceptLeaderless returns nil if err says no more than that partitions have no leader.
func exceptLeaderless(err error) error {
	for _, e := range flatten(err) {
		if !errors.Is(e, sarama.ErrLeaderNotAvailable) {
			return err
		}
	}
	return nil
}

// leaderPoll is how often leaders are looked for that miss, and offsets that no broker told. sarama looks once a
// minute.
const leaderPoll = 2 * time.Second

// awaitLeaders reports the partitions of a session that have no leader, and asks for them until each has one.
func (s *session) awaitLeaders(sess sarama.ConsumerGroupSession) {
	var told string
	for {
		claims := sess.Claims()
		waiting := s.leaderless(claims)
		for topic, partitions := range claims {
			for _, p := range partitions {
				s.unread.note(topic, p, slices.Contains(waiting[topic], p), "it has no leader")
			}
		}
		s.unread.keep(claims)
		if text := fmt.Sprint(waiting); len(waiting) > 0 && text != told {
			s.log.Error("einmal: partitions have no leader, they are not consumed until they have one",
				slog.Any("partitions", waiting))
			told = text
		}
		if len(waiting) == 0 && s.cfg.Rebalance != Cooperative || !pause(sess.Context(), leaderPoll) {
			return
		}
		for _, topic := range slices.Sorted(maps.Keys(waiting)) {
			_ = s.client.RefreshMetadata(topic) // asked again soon
		}
	}
}

func (s *session) leaderless(claims map[string][]int32) map[string][]int32 {
	waiting := map[string][]int32{}
	for topic, partitions := range claims {
		for _, p := range partitions {
			if s.client.PartitionNotReadable(topic, p) {
				waiting[topic] = append(waiting[topic], p)
			}
		}
	}
	return waiting
}
