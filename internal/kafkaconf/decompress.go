package kafkaconf

import "github.com/IBM/sarama"

// MaxDecompressedBatch is what a batch of records may come to when it is decompressed, in bytes: as much as sarama
// reads of a response, so that a batch may be no larger compressed than it may be as it is. Without a bound, 115 kB can
// come to 2 GB.
const MaxDecompressedBatch = 100 << 20

// It is set before main begins, since it is a variable of the process, which sarama reads without a lock. main may set
// another one.
var _ = limitDecompression()

func limitDecompression() bool {
	if sarama.MaxDecompressedBatchSize == 0 {
		sarama.MaxDecompressedBatchSize = MaxDecompressedBatch
	}
	return true
}
