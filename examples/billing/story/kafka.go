package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func newClientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-billing"
	cfg.Version = sarama.V3_6_0_0
	cfg.Metadata.AllowAutoTopicCreation = false
	return cfg
}

// createTopics makes the story's topics, and waits until all their partitions have leaders.
func (s *Story) createTopics(ctx context.Context) error {
	return s.withAdmin(func(admin sarama.ClusterAdmin, client sarama.Client) error {
		for _, topic := range s.topics() {
			// -1: as many replicas as the cluster gives by default
			if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1},
				false); err != nil {
				return fmt.Errorf("create topic %s: %w", topic, err)
			}
			if err := poll(ctx, func() (bool, error) { return hasLeaders(client, topic), nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Story) topics() []string { return []string{s.topic(ordersTopic), s.topic(paymentsTopic)} }

func (s *Story) groups() []string { return []string{s.topic(billingGroup), s.topic(receiptsGroup)} }

// hasLeaders reports whether all partitions of the topic can be written to. A topic that was just created is not known
// everywhere.
func hasLeaders(client sarama.Client, topic string) bool {
	err := client.RefreshMetadata(topic)
	all, err1 := client.Partitions(topic)
	writable, err2 := client.WritablePartitions(topic)
	return errors.Join(err, err1, err2) == nil && len(all) > 0 && len(writable) == len(all)
}

// deleteTopics removes what a story leaves on a cluster: its topics, and its groups.
func (s *Story) deleteTopics() error {
	return s.withAdmin(func(admin sarama.ClusterAdmin, _ sarama.Client) error {
		var errs []error
		for _, group := range s.groups() {
			errs = append(errs, unless(admin.DeleteConsumerGroup(group), sarama.ErrGroupIDNotFound, sarama.ErrNonEmptyGroup)) // the cluster forgets it later
		}
		for _, topic := range s.topics() {
			errs = append(errs, unless(admin.DeleteTopic(topic), sarama.ErrUnknownTopicOrPartition))
		}
		return errors.Join(errs...)
	})
}

// unless returns err, but for those that are none here.
func unless(err error, none ...error) error {
	if slices.ContainsFunc(none, func(target error) bool { return errors.Is(err, target) }) {
		return nil
	}
	return err
}

// withAdmin opens a client for as long as f runs.
func (s *Story) withAdmin(f func(sarama.ClusterAdmin, sarama.Client) error) error {
	client, err := sarama.NewClient(strings.Split(s.Brokers, ","), newClientConfig())
	if err != nil {
		return fmt.Errorf("reach the brokers %s: %w", s.Brokers, err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		_ = client.Close()
		return err
	}
	defer admin.Close() // closes the client too
	return f(admin, client)
}

// awaitCommit waits until the group has committed the end of the topic.
func (s *Story) awaitCommit(ctx context.Context, group, topic string) error {
	return s.withAdmin(func(admin sarama.ClusterAdmin, client sarama.Client) error {
		return poll(ctx, func() (bool, error) {
			if err := s.surprise(); err != nil {
				return false, err
			}
			open, err := backlog(admin, client, group, topic)
			return open == 0, err
		})
	})
}

// backlog returns how many messages of the topic the group has not committed.
func backlog(admin sarama.ClusterAdmin, client sarama.Client, group, topic string) (int64, error) {
	partitions, err := client.Partitions(topic)
	if err != nil {
		return 0, err
	}
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if err != nil {
		return 0, err
	}
	var open int64
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		open += end
		if block := committed.GetBlock(topic, p); block != nil && block.Err == sarama.ErrNoError {
			open -= max(0, block.Offset)
		}
	}
	return open, nil
}

// pollEvery is short against everything that is waited for here.
const pollEvery = 25 * time.Millisecond

// poll asks done again and again until it answers true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause waits for d, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
