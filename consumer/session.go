package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// commitTimeout bounds the commit at the end of a session: it can block as long as the coordinator does not answer. What is
// not committed is delivered again.
const commitTimeout = 2 * time.Second

// session is sarama's handler of one membership in the group, from one rebalance to the next.
type session struct {
	*membership
	ids       map[string]TopicID
	committed map[string]map[int32]int64
}

// Setup is called before the first partition is consumed.
func (s *session) Setup(sess sarama.ConsumerGroupSession) error {
	s.change(Running, Starting, Left)
	s.sessionBegan = time.Now()
	s.ids = topicIDs(s.client, s.topics)
	s.committed = committedOffsets(s.client, s.cfg.Group, sess.Claims())
	s.log.Info("einmal: joined the group", slog.Any("partitions", sess.Claims()), slog.Int("generation", int(sess.GenerationID())))
	return nil
}

// ConsumeClaim holds one partition. It returns only when the session ends: returning earlier would end it for all partitions.
func (s *session) ConsumeClaim(sess sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) error {
	cl := newClaim(s.running, s.group, s.topics[sc.Topic()], s.ids[sc.Topic()], sess, sc)
	cl.leave, cl.committed = s.leave, s.committed[cl.topic.name][cl.partition]
	s.group.Resume(cl.ref()) // a pause survives losing the partition
	s.addClaim(cl)
	defer s.removeClaim(cl)
	s.hooks.partition(s.hooks.hooks.Assigned, cl)
	cl.pump(sc.Messages())
	began := time.Now()
	cl.end(s.drainBudget())
	s.hooks.revoked(cl, time.Since(began))
	return nil
}

// drainBudget is what messages in work have left: on shutdown all of DrainTimeout, on a rebalance no more than it allows, and next
// to nothing without a coordinator.
func (s *session) drainBudget() time.Duration {
	if s.running.ctx.Err() != nil {
		return s.cfg.DrainTimeout
	}
	if s.client.lost() {
		return lostBudget
	}
	return min(s.cfg.DrainTimeout, revokeBudget(s.sarama))
}

// lostBudget is what is left when the coordinator was away for its patience: soon the session is over for the group, and another
// member owns the partitions. Nothing that finishes now can be committed.
const lostBudget = time.Second

// Cleanup is called when all partitions have been let go.
func (s *session) Cleanup(sess sarama.ConsumerGroupSession) error {
	if !within(commitTimeout, sess.Commit) {
		s.log.Warn("einmal: the last commit of the session was not answered in time; what it held may be delivered again")
	}
	s.log.Info("einmal: left the session", slog.Any("cause", context.Cause(sess.Context())))
	return nil
}

// topicIDs asks a broker for the topics' ids. A broker before Kafka 2.8 has none to tell: they stay zero then.
func topicIDs(client sarama.Client, topics map[string]*topic) map[string]TopicID {
	ids := make(map[string]TopicID, len(topics))
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	res, err := client.LeastLoadedBroker().GetMetadata(sarama.NewMetadataRequest(client.Config().Version, names))
	if err != nil {
		return ids
	}
	for _, t := range res.Topics {
		ids[t.Name] = TopicID(t.Uuid)
	}
	return ids
}

// committedOffsets asks for the committed offsets of the claims; 0 stands for those that are not known. sarama does not tell an
// offset that was never committed from one that is out of range.
func committedOffsets(client sarama.Client, group string, claims map[string][]int32) map[string]map[int32]int64 {
	committed := map[string]map[int32]int64{}
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return committed
	}
	res, err := coordinator.FetchOffset(sarama.NewOffsetFetchRequest(client.Config().Version, group, claims))
	if err != nil {
		return committed
	}
	for topic, blocks := range res.Blocks {
		committed[topic] = map[int32]int64{}
		for partition, block := range blocks {
			committed[topic][partition] = max(0, block.Offset)
		}
	}
	return committed
}
