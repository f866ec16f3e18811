package kafkaconf

import (
	"testing"

	"github.com/IBM/sarama"
)

// The bound is there before main begins, and a batch may come to as much as a response.
func TestDecompressionIsBounded(t *testing.T) {
	t.Parallel()
	if got := sarama.MaxDecompressedBatchSize; got != 100<<20 || got != sarama.MaxResponseSize {
		t.Errorf("a batch may come to %d bytes, a response to %d", got, sarama.MaxResponseSize)
	}
}
