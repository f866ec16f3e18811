package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/errtype"
)

const (
	// commitsPoll is how often the brokers are asked what is committed: one request, and none where nothing is to be
	// committed.
	commitsPoll = 2 * time.Second
	// commitsLate is how much longer than the interval between two commits a mark may wait before the log tells.
	commitsLate = 2 * time.Second
)

// commits is what a claim knows about the commits of its marks. sarama makes them in the background. When the
// coordinator refuses them because it is none any more, or is not ready yet, sarama tries again and tells nobody; so
// the brokers are asked what they have.
type commits struct {
	known     bool  // whether the brokers have told since the claim began
	committed int64 // what they told; -1 if nothing is committed
	mark      int64 // that is not known to be committed
	since     time.Time
}

// marked notes a mark. It is called under the claim's lock.
func (c *commits) marked(offset int64, now time.Time) {
	if c.since.IsZero() {
		c.mark, c.since = offset, now
	}
}

// learn takes what the brokers have, and the last mark. It is called under the claim's lock.
func (c *commits) learn(committed, last int64, now time.Time) (confirmed bool) {
	c.known, c.committed = true, committed
	if c.since.IsZero() || committed < c.mark {
		return false
	}
	c.since = time.Time{}
	if last > committed {
		c.marked(last, now)
	}
	return true
}

// offset is the committed offset, -1 if it is not known or there is none.
func (c *commits) offset() int64 {
	if !c.known {
		return -1
	}
	return c.committed
}

// watchCommits asks what is committed of the claims' marks, until ctx is done.
func (s *session) watchCommits(ctx context.Context) {
	for pause(ctx, jitter(commitsPoll)) {
		claims, partitions := s.uncommitted()
		if len(claims) == 0 {
			continue
		}
		found, err := s.committedNow(ctx, partitions)
		if ctx.Err() != nil {
			return
		}
		s.learnCommits(claims, found, err)
	}
}

// uncommitted returns the claims with marks that are not known to be committed, and those of which nothing is known.
func (s *session) uncommitted() (claims []*claim, partitions map[string][]int32) {
	partitions = map[string][]int32{}
	for _, cl := range s.allClaims() {
		cl.mu.Lock()
		ask := !cl.commits.known || !cl.commits.since.IsZero()
		cl.mu.Unlock()
		if ask {
			claims = append(claims, cl)
			partitions[cl.topic.name] = append(partitions[cl.topic.name], cl.partition)
		}
	}
	return claims, partitions
}

// committedNow asks for committed offsets. It does not wait for a coordinator, and not longer than ctx goes on.
func (s *session) committedNow(ctx context.Context, partitions map[string][]int32) (map[string]map[int32]committed,
	error) {
	coordinator := s.client.connected()
	if coordinator == nil {
		return nil, cmp.Or(s.client.why(), errNoConnection)
	}
	ask := func() (map[string]map[int32]committed, error) {
		return askCommitted(coordinator, s.sarama.Version, s.cfg.Group, partitions)
	}
	return bounded(ctx, 0, ask, func(map[string]map[int32]committed) {})
}

var errNoConnection = errors.New("there is no connection to the coordinator of the group")

// learnCommits hands out what the brokers have told, and notes whether commits have stopped or go on.
func (s *session) learnCommits(claims []*claim, found map[string]map[int32]committed, err error) {
	now := time.Now()
	confirmed, waiting, oldest := false, 0, now
	for _, cl := range claims {
		cl.mu.Lock()
		if c, ok := found[cl.topic.name][cl.partition]; ok {
			confirmed = cl.commits.learn(c.offset, cl.marked, now) || confirmed
		}
		if since := cl.commits.since; !since.IsZero() && now.Sub(since) > s.commitPatience() {
			waiting++
			if since.Before(oldest) {
				oldest = since
			}
		}
		cl.mu.Unlock()
	}
	s.tellCommits(now, oldest, waiting, confirmed, err)
}

// commitPatience is how long a mark may wait for its commit.
func (s *session) commitPatience() time.Duration {
	return s.sarama.Consumer.Offsets.AutoCommit.Interval + commitsLate
}

// errNotCommitted is why commits stand when the brokers answer, and have none of them.
var errNotCommitted = errtype.New("not_committed", "the coordinator answers, and has not taken the commits")

// tellCommits notes it as an outage, which outlasts sessions: what stops commits ends sessions, too.
func (s *session) tellCommits(now, oldest time.Time, waiting int, confirmed bool, err error) {
	switch {
	case waiting > 0:
		s.outages.failedSince(s.log, NeedCommits, "", oldest, cmp.Or(err, errNotCommitted), slog.Int("partitions", waiting),
			seconds("waited", now.Sub(oldest)))
	case confirmed:
		s.outages.met(NeedCommits)
	}
}

// ofCommit reports whether an error is an answer that commits get and fetches do not: it says nothing about reading.
func ofCommit(err error) bool {
	for _, answer := range []sarama.KError{
		sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrOffsetsLoadInProgress,
		sarama.ErrIllegalGeneration, sarama.ErrUnknownMemberId, sarama.ErrRebalanceInProgress, sarama.ErrFencedInstancedId,
		sarama.ErrGroupAuthorizationFailed, sarama.ErrOffsetMetadataTooLarge, sarama.ErrInvalidCommitOffsetSize,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// askCommitted asks a coordinator for committed offsets. What it does not tell is absent; the error is the first of
// those.
func askCommitted(coordinator *sarama.Broker, version sarama.KafkaVersion, group string,
	partitions map[string][]int32) (map[string]map[int32]committed, error) {
	res, err := coordinator.FetchOffset(sarama.NewOffsetFetchRequest(version, group, partitions))
	if err != nil {
		return nil, err
	}
	if res.Err != sarama.ErrNoError {
		err = res.Err
	}
	found := map[string]map[int32]committed{}
	for topic, blocks := range res.Blocks {
		found[topic] = map[int32]committed{}
		for partition, block := range blocks {
			if block.Err == sarama.ErrNoError {
				found[topic][partition] = readCommitted(block)
			} else if err == nil {
				err = fmt.Errorf("%s: %w", partitionName(topic, partition), block.Err)
			}
		}
	}
	return found, err
}
