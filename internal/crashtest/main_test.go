package crashtest

import (
	"cmp"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var (
	kills = flag.Int("crash.kills", 0, "random kills in TestKilledAtRandom (default: EINMAL_CRASH_KILLS, or 25)")
	churn = flag.Duration("crash.churn", 0,
		"how long members come and go in TestChurn (default: EINMAL_CHURN on Apache Kafka, or 8s)")
)

// TestMain is also the main of the children: a test starts the program that it runs in.
func TestMain(m *testing.M) {
	childtest.Main(envOrders, childMain)
	serverstest.ParallelTests()
	serverstest.Main(m)
}

// randomKills is how often TestKilledAtRandom kills.
func randomKills(t *testing.T) int {
	t.Helper()
	return childtest.Kills(t, *kills, "EINMAL_CRASH_KILLS", 25)
}

// churnTime is how long members come and go in TestChurn. What EINMAL_CHURN says is for Apache Kafka: the in-process
// one, which has to share this process, takes no more than the short form beside it.
func churnTime(t *testing.T, b *serverstest.Broker) time.Duration {
	t.Helper()
	const short = "8s"
	if *churn > 0 {
		return *churn
	}
	text := cmp.Or(os.Getenv("EINMAL_CHURN"), short)
	if b.Fake != nil {
		text = short
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("EINMAL_CHURN is no time: %v", err)
	}
	return d
}
