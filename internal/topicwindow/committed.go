package topicwindow

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// Committed returns the offsets that a group has committed of a topic's partitions. A partition of which it has
// committed none is not in it.
func (c *Cluster) Committed(group, topic string, partitions []int32) (map[int32]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(c.client) // closing it would close the client
	if err != nil {
		return nil, fmt.Errorf("look up the offsets of the group %q: %w", group, err)
	}
	res, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		return map[int32]int64{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the offsets of the group %q: %w", group, err)
	}
	committed := map[int32]int64{}
	for _, p := range partitions {
		block := res.GetBlock(topic, p)
		switch {
		case block == nil:
			return nil, fmt.Errorf("look up the offset of the group %q in %s[%d]: %w", group, topic, p,
				sarama.ErrIncompleteResponse)
		case block.Err != sarama.ErrNoError:
			return nil, fmt.Errorf("look up the offset of the group %q in %s[%d]: %w", group, topic, p, block.Err)
		case block.Offset >= 0:
			committed[p] = block.Offset
		}
	}
	return committed, nil
}

// Log returns the range of offsets that a partition has now.
func (r *Reader) Log(ctx context.Context, partition int32) (Range, error) {
	oldest, err := r.offset(ctx, partition, sarama.OffsetOldest)
	if err != nil {
		return Range{}, err
	}
	newest, err := r.offset(ctx, partition, sarama.OffsetNewest)
	return Range{partition, oldest, max(oldest, newest)}, err
}
