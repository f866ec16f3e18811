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

// Group is what the brokers know of a consumer group, whether or not a process of it runs.
type Group struct {
	Name        string
	Time        time.Time // when it was asked for
	State       string    // as Kafka names it: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead
	Strategy    string    // how partitions are assigned, by members or by the coordinator; "" without members
	Coordinator string    // the broker's host and port
	Members     []GroupMember
	Partitions  []GroupPartition // all partitions of all topics that members read or that have a committed offset, in their order

	// CommitTimesError says why GroupPartition.CommittedAt is not known of all partitions. Nil if it is.
	CommitTimesError error
}

// GroupMember is a process of the group, or rather a membership: a process that joins again gets another ID.
type GroupMember struct {
	ID         string
	InstanceID string // of a static member; "" for others
	ClientID   string
	Host       string           // as the broker sees it
	Partitions []TopicPartition // that are assigned to it; none while the group rebalances
}

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// GroupPartition is what the brokers know of one partition for the group.
type GroupPartition struct {
	Topic     string
	Partition int32
	Member    string // the ID of the GroupMember to which it is assigned; "" for none

	Committed  int64 // the offset that the group has committed; -1 for none
	Start, End int64 // of the log; -1 while they are not known. End counts what stands in open transactions

	// CommittedAt is when Committed was last committed, by the broker's clock. It is zero where it is not known; then
	// CommittedBefore, if it is not zero, is a time since when nothing was committed.
	CommittedAt, CommittedBefore time.Time

	// Open are messages from Committed on that were open when it was committed, the oldest first and 24 at most: those
	// that have failed, and the oldest if it was older than a second. Members that use einmal leave them with the offset.
	// Later failures come with the next commit, a second later at most while a member runs.
	Open []GroupMessage

	// Err is why Start and End are not known, for example because the partition has no leader.
	Err error
}

// GroupMessage is a message that was not finished when an offset was committed.
type GroupMessage struct {
	Offset   int64
	Fetched  time.Time // when it was first fetched
	First    time.Time // when it was first attempted; zero if it was not
	Attempts int       // that had failed
}

// Lag is how many offsets there are from the committed one up to the end of the log; without a committed one, from the
// log's start. It is -1 while it is not known. Markers of transactions and what compaction has left out count, as in
// all tools.
func (p *GroupPartition) Lag() int64 {
	if p.End < 0 {
		return -1
	}
	return p.End - min(max(p.Committed, p.Start), p.End)
}

// OutOfRange reports whether the committed offset is not in the log any more, or not yet: messages were deleted before
// they were read, or the topic was created again.
func (p *GroupPartition) OutOfRange() bool {
	return p.Committed >= 0 && p.End >= 0 && (p.Committed < p.Start || p.Committed > p.End)
}

// Lag is the sum of the partitions' lags. unknown says of how many it is not known.
func (g *Group) Lag() (sum int64, unknown int) {
	for i := range g.Partitions {
		if lag := g.Partitions[i].Lag(); lag >= 0 {
			sum += lag
		} else {
			unknown++
		}
	}
	return sum, unknown
}

// ErrNoGroup is wrapped by the error of DescribeGroup about a group that has neither members nor committed offsets.
var ErrNoGroup = errors.New("einmal: there is no such group")

// DescribeGroup asks the brokers for a group, as an operator's tool does: it joins nothing and commits nothing, and
// needs no process of the group. It needs the rights to DESCRIBE the group and its topics; when an offset was committed
// is known to who may READ the topic __consumer_offsets too, and is looked for within a second. The client stays the
// caller's. It is safe for concurrent use.
//
// Groups whose partitions the coordinator assigns (group.protocol=consumer, KIP-848) are shown too, from Kafka 3.7 on.
//
// The requests are few, whatever the group's size. Their time-outs are those of the client's configuration; the end of
// ctx ends the wait for them.
func DescribeGroup(ctx context.Context, client sarama.Client, name string) (*Group, error) {
	if name == "" {
		return nil, errors.New("einmal: which group? Its name is empty")
	}
	return bounded(ctx, 0, func() (*Group, error) { return lookAtGroup(ctx, client, name) }, func(*Group) {})
}

func lookAtGroup(ctx context.Context, client sarama.Client, name string) (*Group, error) {
	v := &groupView{client: client, partitions: map[TopicPartition]*GroupPartition{}}
	v.Name, v.Time = name, time.Now()
	if err := v.askCoordinator(); err != nil {
		return nil, fmt.Errorf("einmal: describe the group %q: %w", name, err)
	}
	if len(v.Members) == 0 && len(v.partitions) == 0 {
		return nil, fmt.Errorf("%w: %q has neither members nor committed offsets; check the name and the cluster", ErrNoGroup,
			name)
	}
	commits := v.commitTimesLater(ctx)
	if err := v.askLog(ctx); err != nil {
		return nil, fmt.Errorf("einmal: describe the group %q: %w", name, err)
	}
	v.Partitions = v.sorted()
	v.addCommitTimes(<-commits)
	return &v.Group, nil
}

// groupView is a Group that is being asked for.
type groupView struct {
	Group
	client     sarama.Client
	partitions map[TopicPartition]*GroupPartition
	carried    map[TopicPartition]string
	topics     map[string]bool
}

// at returns a partition, which may be new.
func (v *groupView) at(topic string, partition int32) *GroupPartition {
	key := TopicPartition{topic, partition}
	p := v.partitions[key]
	if p == nil {
		p = &GroupPartition{Topic: topic, Partition: partition, Committed: -1, Start: -1, End: -1}
		v.partitions[key] = p
	}
	return p
}

// sorted returns the partitions in their order.
func (v *groupView) sorted() []GroupPartition {
	all := make([]GroupPartition, 0, len(v.partitions))
	for _, p := range slices.SortedFunc(maps.Values(v.partitions), func(a, b *GroupPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}) {
		all = append(all, *p)
	}
	return all
}
