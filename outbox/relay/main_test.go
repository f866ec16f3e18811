package relay_test

import (
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) {
	serverstest.ParallelTests()
	serverstest.Main(m)
}
