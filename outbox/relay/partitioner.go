package relay

import (
	"cmp"
	"math/rand/v2"

	"github.com/IBM/sarama"
)

// partitioners are what the names of Config mean.
var partitioners = map[Partitioner]sarama.PartitionerConstructor{
	HashPartitioner:    sarama.NewHashPartitioner,
	Murmur2Partitioner: sarama.NewMurmur2Partitioner,
	CRC32Partitioner:   sarama.NewConsistentCRCHashPartitioner,
}

// partitionerOf is that of a topic.
func (c *Config) partitionerOf(topic string) sarama.PartitionerConstructor {
	return partitioners[cmp.Or(c.Partitioners[topic], c.Partitioner)]
}

// partitioner chooses the partitions of a topic, for one batch.
type partitioner struct {
	byKey  sarama.Partitioner
	chosen int32 // for all rows without a key, so that they share a record batch; -1 as long as there is none
}

func newPartitioner(of sarama.PartitionerConstructor, topic string) *partitioner {
	return &partitioner{byKey: of(topic), chosen: -1}
}

func (p *partitioner) partition(key []byte, partitions int32) int32 {
	if key != nil {
		n, err := p.byKey.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, partitions)
		if err == nil {
			return n
		}
	}
	if p.chosen < 0 {
		p.chosen = rand.Int32N(partitions) //nolint:gosec // no secret
	}
	return p.chosen
}
