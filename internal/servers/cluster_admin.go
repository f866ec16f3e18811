package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterClientConfig is that of clients which must not wait for a node that is dead or frozen.
func clusterClientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-servers"
	cfg.Version = sarama.V3_6_0_0
	cfg.Metadata.Retry.Max = 0
	cfg.Admin.Timeout = 10 * time.Second
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 2*time.Second, 5*time.Second, 5*time.Second
	return cfg
}

// ask asks a node that lives, with a client of its own.
func ask[T any](c *Cluster, question func(sarama.Client) (T, error)) (answer T, err error) {
	client, err := sarama.NewClient(c.up(), clusterClientConfig())
	if err != nil {
		return answer, err
	}
	defer client.Close()
	return question(client)
}

// Leader is the node that leads a partition.
func (c *Cluster) Leader(topic string, partition int32) (node int, err error) {
	return ask(c, func(client sarama.Client) (int, error) {
		leader, err := client.Leader(topic, partition)
		if err != nil {
			return 0, fmt.Errorf("leader of %s[%d]: %w", topic, partition, err)
		}
		return c.Node(leader.Addr()), nil
	})
}

// Coordinator is the node that coordinates a group.
func (c *Cluster) Coordinator(group string) (node int, err error) {
	return ask(c, func(client sarama.Client) (int, error) {
		coordinator, err := client.Coordinator(group)
		if err != nil {
			return 0, fmt.Errorf("coordinator of %s: %w", group, err)
		}
		return c.Node(coordinator.Addr()), nil
	})
}

// Controller is the node whose controller is the active one. When it dies, the next one first gives all brokers a new
// session, so that a broker which died with it is noticed later.
func (c *Cluster) Controller(ctx context.Context) (node int, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.up()...), kgo.ClientID("einmal-servers"))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("the active controller: %w", err)
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				return int(p.LeaderID), nil
			}
		}
	}
	return 0, errors.New("no controller is active")
}

// Settle waits until every replica is in sync again, and brings every partition back to the node that led it first:
// after a restart leadership stays where it went.
func (c *Cluster) Settle(ctx context.Context) error {
	return until(ctx, nil, nil, func(context.Context) error {
		_, err := ask(c, func(client sarama.Client) (struct{}, error) { return struct{}{}, c.settled(client) })
		return err
	})
}

// settled is nil if all is as it was at first. If it could be, it says so to the cluster.
func (c *Cluster) settled(client sarama.Client) error {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	names, err := client.Topics()
	if err != nil {
		return err
	}
	topics, err := admin.DescribeTopics(names)
	if err != nil {
		return err
	}
	away := map[string][]int32{}
	for _, t := range topics {
		for _, p := range t.Partitions {
			if len(p.Isr) < len(p.Replicas) {
				return fmt.Errorf("%s[%d]: replicas %v are in sync, of %v", t.Name, p.ID, p.Isr, p.Replicas)
			}
			if p.Leader != p.Replicas[0] {
				away[t.Name] = append(away[t.Name], p.ID)
			}
		}
	}
	if len(away) == 0 {
		return nil
	}
	_, err = admin.ElectLeaders(sarama.PreferredElection, away)
	return errors.Join(fmt.Errorf("partitions are led by others than at first: %v", away), err)
}
