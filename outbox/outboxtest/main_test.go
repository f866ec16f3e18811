package outboxtest_test

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var kills = flag.Int("outbox.kills", 0, "random kills in TestKilledAtRandom (default: EINMAL_OUTBOX_KILLS, or 12)")

// TestMain is also the main of the children: a test starts the program that it runs in.
func TestMain(m *testing.M) {
	if text := os.Getenv(envOrders); text != "" {
		os.Exit(childMain(text))
	}
	serverstest.ParallelTests()
	serverstest.Main(m)
}

func randomKills(t *testing.T) int {
	t.Helper()
	if *kills > 0 {
		return *kills
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("EINMAL_OUTBOX_KILLS"), "12"))
	if err != nil || n < 1 {
		t.Fatalf("EINMAL_OUTBOX_KILLS is no number of kills: %v", err)
	}
	return n
}
