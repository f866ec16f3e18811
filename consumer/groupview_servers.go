package consumer

import (
	"errors"
	"strings"

	"github.com/IBM/sarama"
)

// askServerSide asks for a group whose partitions the coordinator assigns (group.protocol=consumer, KIP-848). The
// request for the others says that such a group is dead, or has no members. Those of einmal are in none: another
// client's are.
func (v *groupView) askServerSide(coordinator *sarama.Broker) error {
	conf := *v.client.Config()
	conf.Version = sarama.V3_7_0_0 // which has the request; the client's own is older
	again := sarama.NewBroker(coordinator.Addr())
	if err := again.Open(&conf); err != nil {
		return err
	}
	defer again.Close()
	res, err := again.ConsumerGroupDescribe(&sarama.ConsumerGroupDescribeRequest{GroupIDs: []string{v.Name}})
	switch {
	case errors.Is(err, sarama.ErrUnsupportedVersion): // the broker is older
		return nil
	case err != nil:
		return err
	}
	for i := range res.Groups {
		switch g := &res.Groups[i]; g.ErrorCode {
		case sarama.ErrNoError:
			v.takeServerSide(g)
		case sarama.ErrGroupIDNotFound, sarama.ErrUnsupportedVersion: // the protocol may be switched off
		default:
			return g.ErrorCode
		}
	}
	return nil
}

func (v *groupView) takeServerSide(g *sarama.ConsumerGroupDescription) {
	v.State, v.Strategy = g.GroupState, g.AssignorName
	for _, m := range g.Members {
		member := GroupMember{ID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/")}
		if m.InstanceID != nil {
			member.InstanceID = *m.InstanceID
		}
		for _, topic := range m.SubscribedTopicNames {
			v.topics[topic] = true
		}
		for _, t := range m.Assignment.TopicPartitions {
			if t.TopicName != "" { // it was deleted
				v.assign(&member, t.TopicName, t.Partitions)
			}
		}
		v.addMember(member)
	}
}
