package servers

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// ExpireGhosts makes an in-process Kafka do what Apache Kafka does by itself: expire a member that died while it waited
// to join. The in-process one starts a member's session time-out only with its first sign of life after that, and a
// dead one gives none: it would hold its partitions for ever. So each member of each new generation of the group gets
// one heartbeat from here, until ctx ends.
func ExpireGhosts(ctx context.Context, cluster *kfake.Cluster, group string) {
	conf := sarama.NewConfig()
	conf.ClientID = "einmal-ghosts"
	conf.Version = sarama.V3_6_0_0
	conf.Metadata.AllowAutoTopicCreation = false
	client, err := sarama.NewClient(cluster.ListenAddrs(), conf)
	if err != nil {
		return // whoever else uses the brokers reports it
	}
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for seen := int32(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if info := cluster.GroupInfo(group); info != nil && info.Epoch != seen && info.State != "PreparingRebalance" &&
			greet(client, group, info) {
			seen = info.Epoch
		}
	}
}

// greet sends a heartbeat in the name of each member.
func greet(client sarama.Client, group string, info *kfake.GroupInfo) bool {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return false // it is asked again
	}
	for _, m := range info.Members {
		_, _ = coordinator.Heartbeat(&sarama.HeartbeatRequest{GroupId: group, GenerationId: info.Epoch, MemberId: m.MemberID})
	}
	return true
}
