package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// commitTimeout bounds the commit at the end of a session: it can block as long as the coordinator does not answer.
// What is not committed is delivered again.
const commitTimeout = 2 * time.Second

// session is sarama's handler of one assignment: in eager mode from one rebalance to the next, in cooperative mode
// through all rebalances of a membership.
type session struct {
	*membership
	end       context.CancelFunc // ends the session; the membership goes on
	watching  sync.WaitGroup
	recreated map[string]bool                // topics that were created again since the session before
	committed map[string]map[int32]committed // when the session began; absent where it is not known
}

// Setup is called before the first partition is consumed.
func (s *session) Setup(sess sarama.ConsumerGroupSession) error {
	if err := s.learnIDs(sess.Claims()); err != nil {
		// Without its topic's id a message would have another identity than after the next rebalance.
		return fmt.Errorf("ask for the ids of the topics: %w", err)
	}
	s.sessionBegan = time.Now()
	if s.cfg.Rebalance != Cooperative {
		s.sessionTotals.rebalanced()
	}
	s.client.fetchFor(s.sharing(sess.Claims()), s.cfg.Limits)
	s.committed = committedOffsets(s.client, s.cfg.Group, s.asked(sess.Claims()))
	if s.cfg.Rebalance != Cooperative {
		if err := s.position(sess); err != nil {
			return err
		}
	}
	w := &topicWatch{membership: s.membership, began: s.count(), end: s.end}
	s.watching.Go(func() { w.run(sess.Context()) })
	s.watching.Go(func() { s.awaitLeaders(sess) })
	s.watching.Go(func() { s.watchEnds(sess.Context()) })
	s.watching.Go(func() { s.watchCommits(sess.Context()) })
	s.askAgain(sess)
	s.outages.met(NeedCoordinator)
	s.change(Running, Starting, Left) // when the positions are set: Ready says that nothing from now on is missed
	s.log.Info("einmal: joined the group", slog.Any("partitions", sess.Claims()),
		slog.Int("generation", int(sess.GenerationID())))
	return nil
}

// ConsumeClaim holds one partition. It returns only when the session ends or the partition is revoked: returning
// earlier would end the session for all partitions.
func (s *session) ConsumeClaim(sess sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) error {
	t := s.topics[sc.Topic()]
	if s.cfg.Rebalance == Cooperative && s.recreated[t.name] {
		s.restart(sess, sc)
		return nil
	}
	cl := newClaim(s.running, s.group, t, s.topicID(t.name), sess, sc)
	cl.leave = s.leave
	was := s.committedOffset(sc)
	cl.committed, cl.note = was.offset, was.note
	cl.inherit(was.carried)
	s.group.Resume(cl.ref()) // a pause survives losing the partition
	t.assigned(cl.partition)
	s.addClaim(cl)
	defer s.removeClaim(cl)
	cl.syncPause()
	t.totals.count(func(now *TopicTotals) { now.Assigned++ })
	s.hooks.partition(s.hooks.hooks.Assigned, cl)
	if s.begin(cl) {
		cl.pump(sc.Messages())
	}
	began := time.Now()
	cl.end(s.drainBudget())
	if s.cfg.Rebalance == Cooperative { // else Cleanup commits, for all partitions at once
		s.commit(sess)
	}
	drain := time.Since(began)
	t.totals.count(func(now *TopicTotals) { now.Drained, now.DrainTime = now.Drained+1, now.DrainTime+drain })
	s.hooks.revoked(cl, drain)
	return nil
}

// restart makes a partition of a topic that was created again start anew in cooperative mode, where the position of a
// fetch that runs cannot be set: it commits the start, and the session begins again.
func (s *session) restart(sess sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) {
	s.tellRecreated(s.topics[sc.Topic()], sc.Partition())
	sess.ResetOffset(sc.Topic(), sc.Partition(), 0, "")
	s.commit(sess)
}

// committedOffset returns what was committed when the claim began. Claims of a cooperative rebalance are not known in
// Setup.
func (s *session) committedOffset(sc sarama.ConsumerGroupClaim) committed {
	known := s.committed
	if s.cfg.Rebalance == Cooperative {
		known = committedOffsets(s.client, s.cfg.Group, map[string][]int32{sc.Topic(): {sc.Partition()}})
	}
	if c, ok := known[sc.Topic()][sc.Partition()]; ok {
		c.note = cmp.Or(c.note, s.startNote(s.topics[sc.Topic()], sc.Partition()))
		return c
	}
	return committed{offset: -1}
}

// asked returns the partitions whose committed offsets a session needs to know: its own, and all of a topic whose start
// depends on what the group has read of it.
func (s *session) asked(claims map[string][]int32) map[string][]int32 {
	claims = maps.Clone(claims)
	for name := range claims {
		if s.topics[name].start.newest {
			if all, err := s.client.Partitions(name); err == nil {
				claims[name] = all
			}
		}
	}
	return claims
}

// committed is what a group has committed for a partition.
type committed struct {
	offset  int64  // -1 if nothing
	note    string // of an earlier session, see notePartitions
	carried string // text of the claim before
}

// drainBudget is what messages in work have left: on shutdown all of DrainTimeout, on a rebalance no more than it
// allows, and next to nothing without a coordinator.
func (s *session) drainBudget() time.Duration {
	if s.running.ctx.Err() != nil {
		return s.cfg.DrainTimeout
	}
	if s.client.lost() {
		return lostBudget
	}
	return min(s.cfg.DrainTimeout, revokeBudget(s.sarama))
}

// lostBudget is what is left when the coordinator was away for its patience: soon the session is over for the group,
// and another member owns the partitions. Nothing that finishes now can be committed.
const lostBudget = time.Second

// Cleanup is called when all partitions have been let go.
func (s *session) Cleanup(sess sarama.ConsumerGroupSession) error {
	s.commit(sess)
	s.sessionEnd = context.Cause(sess.Context())
	s.log.Info("einmal: left the session", slog.Any("cause", s.sessionEnd))
	return nil
}

func (s *session) commit(sess sarama.ConsumerGroupSession) {
	if !within(commitTimeout, sess.Commit) {
		s.log.Warn("einmal: the last commit of the session was not answered in time; what it held may be delivered again")
	}
}

// topicIDs asks a broker for the ids of the topics that exist. A broker before Kafka 2.8 has none to tell: they stay
// zero then.
func topicIDs(client sarama.Client, topics map[string]*topic) (map[string]TopicID, error) {
	res, err := askTopics(client, slices.Collect(maps.Keys(topics)))
	if err != nil {
		return nil, err
	}
	ids := make(map[string]TopicID, len(topics))
	for _, t := range res.Topics {
		switch {
		case errors.Is(t.Err, sarama.ErrNoError):
			ids[t.Name] = TopicID(t.Uuid)
		case !errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition): // that one is gone
			return nil, fmt.Errorf("topic %q: %w", t.Name, t.Err)
		}
	}
	return ids, nil
}

// committedOffsets asks for the committed offsets of the claims. sarama does not tell an offset that was never
// committed from one that is out of range.
func committedOffsets(client sarama.Client, group string, claims map[string][]int32) map[string]map[int32]committed {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return nil
	}
	found, _ := askCommitted(coordinator, client.Config().Version, group, claims) // what is not told is not known
	return found
}

func readCommitted(block *sarama.OffsetFetchResponseBlock) committed {
	note, text := cutCarried(block.Metadata)
	c := committed{offset: block.Offset, carried: text}
	if strings.HasPrefix(note, notePartitions) { // others' metadata are not ours to keep
		c.note = note
	}
	return c
}
