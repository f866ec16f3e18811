package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// createTopic makes the topic if it is missing, and waits until all its partitions have leaders.
func createTopic(ctx context.Context, t target, partitions int32) error {
	return withAdmin(t, func(admin sarama.ClusterAdmin, client sarama.Client) error {
		// -1: as many replicas as the cluster gives by default
		err := admin.CreateTopic(t.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1}, false)
		if err := unless(err, sarama.ErrTopicAlreadyExists); err != nil {
			return fmt.Errorf("create topic %s: %w", t.topic, err)
		}
		return poll(ctx, func() (bool, error) { return hasLeaders(client, t.topic), nil })
	})
}

// hasLeaders reports whether all partitions of the topic can be written to. A topic that was just created is not known everywhere.
func hasLeaders(client sarama.Client, topic string) bool {
	err := client.RefreshMetadata(topic)
	all, err1 := client.Partitions(topic)
	writable, err2 := client.WritablePartitions(topic)
	return errors.Join(err, err1, err2) == nil && len(all) > 0 && len(writable) == len(all)
}

// deleteTopic removes what a story leaves on a cluster: its topic, and its group.
func deleteTopic(t target) error {
	return withAdmin(t, func(admin sarama.ClusterAdmin, _ sarama.Client) error {
		return errors.Join(
			unless(admin.DeleteConsumerGroup(t.group), sarama.ErrGroupIDNotFound, sarama.ErrNonEmptyGroup), // the cluster forgets it later
			unless(admin.DeleteTopic(t.topic), sarama.ErrUnknownTopicOrPartition))
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
func withAdmin(t target, f func(sarama.ClusterAdmin, sarama.Client) error) error {
	client, err := sarama.NewClient(t.addrs(), newClientConfig())
	if err != nil {
		return fmt.Errorf("reach the brokers %s: %w", t.brokers, err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		_ = client.Close()
		return err
	}
	defer admin.Close() // closes the client too
	return f(admin, client)
}

// backlog returns how many messages of the topic the group has not committed.
func backlog(admin sarama.ClusterAdmin, client sarama.Client, t target) (int64, error) {
	partitions, err := client.Partitions(t.topic)
	if err != nil {
		return 0, err
	}
	committed, err := admin.ListConsumerGroupOffsets(t.group, map[string][]int32{t.topic: partitions})
	if err != nil {
		return 0, err
	}
	var open int64
	for _, p := range partitions {
		end, err := client.GetOffset(t.topic, p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		open += end
		if block := committed.GetBlock(t.topic, p); block != nil && block.Err == sarama.ErrNoError {
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
