package consumer_test

import (
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// maxDecompressed is the bound for what is decompressed, as main can set it: smaller than by default, for the tests
// that exceed it.
const maxDecompressed = 16 << 20

func TestMain(m *testing.M) {
	sarama.MaxDecompressedBatchSize = maxDecompressed
	serverstest.ParallelTests()
	serverstest.Main(m)
}
