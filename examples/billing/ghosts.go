package main

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// expireGhosts makes the in-process Kafka do what Apache Kafka does by itself: expire a member that died while it waited to join. The
// in-process one starts a member's session time-out only with its first sign of life after that, and a dead one gives none: it would
// hold its partitions for ever. So each member of each new generation gets one heartbeat from here. It returns when ctx ends.
func expireGhosts(ctx context.Context, cluster *kfake.Cluster, t target) {
	client, err := sarama.NewClient(t.addrs(), newClientConfig())
	if err != nil {
		return // whoever else uses the brokers reports it
	}
	defer client.Close()
	seen := int32(0)
	_ = poll(ctx, func() (bool, error) {
		group := cluster.GroupInfo(t.group)
		if group == nil || group.Epoch == seen || group.State == "PreparingRebalance" {
			return false, nil
		}
		coordinator, err := client.Coordinator(t.group)
		if err != nil {
			return false, nil //nolint:nilerr // it is asked again
		}
		for _, m := range group.Members {
			_, _ = coordinator.Heartbeat(&sarama.HeartbeatRequest{GroupId: t.group, GenerationId: group.Epoch, MemberId: m.MemberID})
		}
		seen = group.Epoch
		return false, nil
	})
}
