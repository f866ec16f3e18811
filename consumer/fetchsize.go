package consumer

import "github.com/IBM/sarama"

// A partition of which nothing is held is read whatever the others hold, so what one fetch brings of each partition
// comes on top of Limits.Messages and Limits.Bytes. The size of the fetches therefore follows these limits and the
// number of partitions.
const (
	// fetchPerMessage are the bytes of all fetches for each message that may be held: half of a short message with its
	// overhead, so that there is room for compressed ones. With less, fetches of many partitions cost more than the
	// messages that they bring.
	fetchPerMessage = 48
	// fetchShare is the part of Limits.Bytes that all fetches together may bring, for the same reason.
	fetchShare = 16
	// minFetch is what a fetch may bring of a partition at least: a batch by the default of Kafka's producer (batch.size).
	// Of partitions whose batches are larger brokers send one batch in each answer.
	minFetch = 16 << 10
)

// fetchSize is what a fetch may bring of each of n partitions, at most most.
func fetchSize(n int, limits Limits, most int32) int32 {
	all := min(fetchPerMessage*limits.Messages, limits.Bytes/fetchShare)
	return int32(min(int(most), max(minFetch, all/max(1, n)))) //nolint:gosec // no more than it
}

// Config implements sarama.Client.
func (g *groupClient) Config() *sarama.Config { return g.conf }

// fetchFor sets the size of the fetches for n partitions. None may be read meanwhile: sarama looks at it after each
// answer.
func (g *groupClient) fetchFor(n int, limits Limits) {
	g.conf.Consumer.Fetch.Default = fetchSize(n, limits, g.Client.Config().Consumer.Fetch.Default)
}

// sharing is how many partitions share the limits: those of the assignment, or in cooperative mode, in which partitions
// come while others are read, all that may come.
func (s *session) sharing(claims map[string][]int32) (n int) {
	for name := range s.topics {
		partitions := claims[name]
		if s.cfg.Rebalance == Cooperative {
			partitions, _ = s.client.Partitions(name) // none of a topic that is not known
		}
		n += len(partitions)
	}
	return n
}
