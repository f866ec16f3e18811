package losttest

import (
	"flag"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var (
	crashes   = flag.Int("lost.crashes", 4, "how often the server crashes in TestServerKilledUnderLoad")
	failovers = flag.Int("lost.failovers", 1, "how often each case of TestFailsOver runs")
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
