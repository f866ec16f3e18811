package outboxtest_test

import (
	"flag"
	"testing"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var kills = flag.Int("outbox.kills", 0, "random kills in TestKilledAtRandom (default: EINMAL_OUTBOX_KILLS, or 12)")

// TestMain is also the main of the children: a test starts the program that it runs in.
func TestMain(m *testing.M) {
	childtest.Main(envOrders, childMain)
	serverstest.ParallelTests()
	serverstest.Main(m)
}

func randomKills(t *testing.T) int {
	t.Helper()
	return childtest.Kills(t, *kills, "EINMAL_OUTBOX_KILLS", 12)
}
