package crashtest

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// expireGhosts makes the in-process Kafka do what Apache Kafka does by itself: expire a member that died while it waited to join. The
// in-process one starts a member's session time-out only with its first sign of life after that, and a dead one gives none: it would
// hold its partitions for ever. So each member of each new generation gets one heartbeat from here, until done is closed.
func (w *world) expireGhosts(t testing.TB, done <-chan struct{}) {
	client, err := sarama.NewClient(w.b.Addrs, clientConfig())
	if err != nil {
		t.Errorf("expire ghosts: %v", err)
		return
	}
	defer client.Close()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for seen := int32(0); ; {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		group := w.b.Fake.GroupInfo(w.group)
		if group == nil || group.Epoch == seen || group.State == preparing {
			continue
		}
		coordinator, err := client.Coordinator(w.group)
		if err != nil {
			continue // it is asked again
		}
		for _, m := range group.Members {
			_, _ = coordinator.Heartbeat(&sarama.HeartbeatRequest{GroupId: w.group, GenerationId: group.Epoch, MemberId: m.MemberID})
		}
		seen = group.Epoch
	}
}

// preparing is the state of a group that waits for its members to join again.
const preparing = "PreparingRebalance"

func clientConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal-crashtest"
	c.Version = sarama.V3_6_0_0
	c.Metadata.AllowAutoTopicCreation = false
	return c
}
