package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// coordinatorTries is how often the coordinator is asked: it may have moved.
const coordinatorTries = 3

// askCoordinator asks for the members and for the committed offsets.
func (v *groupView) askCoordinator() (err error) {
	for try := range coordinatorTries {
		if try > 0 {
			_ = v.client.RefreshCoordinator(v.Name)
		}
		if err = v.askOnce(); err == nil || errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
			return err
		}
	}
	return err
}

func (v *groupView) askOnce() error {
	coordinator, err := v.client.Coordinator(v.Name)
	if err != nil {
		return err
	}
	v.Coordinator = coordinator.Addr()
	res, err := coordinator.DescribeGroups(&sarama.DescribeGroupsRequest{Version: v.describeVersion(),
		Groups: []string{v.Name}})
	if err != nil {
		_ = coordinator.Close() // the next Coordinator opens it again
		return err
	}
	offsets, err := coordinator.FetchOffset(sarama.NewOffsetFetchRequest(v.client.Config().Version, v.Name, nil))
	if err != nil {
		_ = coordinator.Close()
		return err
	}
	if err := offsets.GroupError(); !errors.Is(err, sarama.ErrNoError) && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return err
	}
	clear(v.partitions)
	v.Members, v.topics, v.carried = nil, map[string]bool{}, map[TopicPartition]string{}
	if err := v.takeOffsets(offsets); err != nil {
		return err
	}
	if err := v.takeMembers(res); err != nil {
		return err
	}
	if len(v.Members) == 0 {
		err = v.askServerSide(coordinator)
	}
	v.sortMembers()
	return err
}

// describeVersion is one that tells of static members, where the brokers know them.
func (v *groupView) describeVersion() int16 {
	if v.client.Config().Version.IsAtLeast(sarama.V2_4_0_0) {
		return 5
	}
	return 1
}

// takeOffsets returns the error of an offset that the coordinator cannot tell: it would look as if nothing were
// committed.
func (v *groupView) takeOffsets(res *sarama.OffsetFetchResponse) error {
	for topic, partitions := range res.Blocks {
		for partition, block := range partitions {
			if block.Err != sarama.ErrNoError {
				return fmt.Errorf("the committed offset of %s: %w", partitionName(topic, partition), block.Err)
			}
			if block.Offset < 0 {
				continue
			}
			v.topics[topic] = true
			v.at(topic, partition).Committed = block.Offset
			_, v.carried[TopicPartition{topic, partition}] = cutCarried(block.Metadata)
		}
	}
	return nil
}

func (v *groupView) takeMembers(res *sarama.DescribeGroupsResponse) error {
	i := slices.IndexFunc(res.Groups, func(g *sarama.GroupDescription) bool { return g.GroupId == v.Name })
	if i < 0 {
		return sarama.ErrIncompleteResponse
	}
	g := res.Groups[i]
	switch err := sarama.KError(g.ErrorCode); {
	case err == sarama.ErrGroupIDNotFound:
		v.State = "Dead"
		return nil
	case err != sarama.ErrNoError:
		return err
	case g.ProtocolType != "" && g.ProtocolType != consumerProtocol:
		return fmt.Errorf("it is not a group of consumers, its members use the protocol %q", g.ProtocolType)
	}
	v.State, v.Strategy = g.State, g.Protocol
	for _, m := range g.Members {
		v.takeMember(m)
	}
	return nil
}

// takeMember reads what the member wants and has. A client that writes it in another way than Java's has neither.
func (v *groupView) takeMember(m *sarama.GroupMemberDescription) {
	member := GroupMember{ID: m.MemberId, ClientID: m.ClientId, Host: strings.TrimPrefix(m.ClientHost, "/")}
	if m.GroupInstanceId != nil {
		member.InstanceID = *m.GroupInstanceId
	}
	if wanted, err := m.GetMemberMetadata(); err == nil && wanted != nil {
		for _, topic := range wanted.Topics {
			v.topics[topic] = true
		}
	}
	if has, err := m.GetMemberAssignment(); err == nil && has != nil {
		for topic, partitions := range has.Topics {
			v.assign(&member, topic, partitions)
		}
	}
	v.addMember(member)
}

// assign notes that partitions of a topic are the member's.
func (v *groupView) assign(member *GroupMember, topic string, partitions []int32) {
	v.topics[topic] = true
	for _, p := range partitions {
		v.at(topic, p).Member = member.ID
		member.Partitions = append(member.Partitions, TopicPartition{topic, p})
	}
}

func (v *groupView) addMember(member GroupMember) {
	slices.SortFunc(member.Partitions, func(a, b TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	v.Members = append(v.Members, member)
}

func (v *groupView) sortMembers() {
	slices.SortFunc(v.Members, func(a, b GroupMember) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.ID, b.ID))
	})
}

// askLog asks which partitions the topics have, and where their logs begin and end.
func (v *groupView) askLog(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(v.topics))
	if len(names) == 0 {
		return nil
	}
	_ = v.client.RefreshMetadata(names...) // for Leader, below; what is wrong with a topic is in the answer to askTopics
	res, err := askTopics(v.client, names)
	if err != nil {
		return err
	}
	for _, t := range res.Topics {
		v.takeTopic(t)
	}
	failed := v.askEnds(slices.Collect(maps.Values(v.partitions)))
	for range coordinatorTries - 1 {
		if len(failed) == 0 || ctx.Err() != nil {
			break
		}
		_ = v.client.RefreshMetadata(names...)
		failed = v.askEnds(failed)
	}
	return ctx.Err()
}

// takeTopic adds the partitions that nobody has and of which nothing is committed, and reads what was carried about the
// others.
func (v *groupView) takeTopic(t *sarama.TopicMetadata) {
	for _, p := range t.Partitions {
		v.at(t.Name, p.ID)
	}
	for key, text := range v.carried {
		if key.Topic != t.Name {
			continue
		}
		p := v.partitions[key]
		if t.Err != sarama.ErrNoError {
			p.Err = t.Err
		}
		for _, it := range readCarried(text, TopicID(t.Uuid)).open {
			p.Open = append(p.Open, GroupMessage{it.offset, it.fetched, it.first, it.attempts})
		}
	}
}

// askEnds asks each leader once for all its partitions' starts and once for their ends. It returns those of which it
// has not learnt both.
func (v *groupView) askEnds(partitions []*GroupPartition) (failed []*GroupPartition) {
	byLeader := map[*sarama.Broker][]*GroupPartition{}
	for _, p := range partitions {
		leader, err := v.client.Leader(p.Topic, p.Partition)
		if err != nil {
			p.Err = err
			failed = append(failed, p)
			continue
		}
		byLeader[leader] = append(byLeader[leader], p)
	}
	results := make(chan []*GroupPartition)
	for leader, led := range byLeader {
		go func() { results <- v.askLeader(leader, led) }()
	}
	for range byLeader {
		failed = append(failed, <-results...)
	}
	return failed
}

func (v *groupView) askLeader(leader *sarama.Broker, led []*GroupPartition) (failed []*GroupPartition) {
	starts, err := v.offsets(leader, led, sarama.OffsetOldest)
	var ends *sarama.OffsetResponse
	if err == nil {
		ends, err = v.offsets(leader, led, sarama.OffsetNewest)
	}
	if err != nil {
		_ = leader.Close() // the next Leader opens it again
	}
	for _, p := range led {
		if p.Err = err; err == nil {
			p.Start, p.Err = answeredOffset(starts, p)
		}
		if p.Err == nil {
			p.End, p.Err = answeredOffset(ends, p)
		}
		if p.Err != nil {
			p.Start, p.End = -1, -1
			failed = append(failed, p)
		}
	}
	return failed
}

func (v *groupView) offsets(leader *sarama.Broker, led []*GroupPartition, which int64) (*sarama.OffsetResponse, error) {
	req := sarama.NewOffsetRequest(v.client.Config().Version)
	for _, p := range led {
		req.AddBlock(p.Topic, p.Partition, which, 1)
	}
	return leader.GetAvailableOffsets(req)
}

func answeredOffset(res *sarama.OffsetResponse, p *GroupPartition) (int64, error) {
	switch block := res.GetBlock(p.Topic, p.Partition); {
	case block == nil:
		return -1, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return -1, block.Err
	case len(block.Offsets) == 1 && res.Version == 0:
		return block.Offsets[0], nil
	default:
		return block.Offset, nil
	}
}

// commitTimes are those that were found.
type commitTimes struct {
	at    map[TopicPartition]time.Time
	since time.Time // all commits from then on were looked at; zero if none were
	err   error     // why not all were
}

func (v *groupView) addCommitTimes(c commitTimes) {
	for i := range v.Partitions {
		p := &v.Partitions[i]
		switch at := c.at[TopicPartition{p.Topic, p.Partition}]; {
		case p.Committed < 0:
		case !at.IsZero():
			p.CommittedAt = at
		case c.err != nil:
			p.CommittedBefore, v.CommitTimesError = c.since, c.err
		}
	}
}
