package losttest

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var (
	crashes = flag.Int("lost.crashes", 0,
		"how often the server crashes in TestServerKilledUnderLoad (default: EINMAL_LOST_CRASHES, or 4)")
	failovers = flag.Int("lost.failovers", 0,
		"how often each case of TestFailsOver runs (default: EINMAL_LOST_FAILOVERS, or 1)")
)

func TestMain(m *testing.M) {
	serverstest.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// times is the flag's value, or the variable's, or the short form's.
func times(t testing.TB, given int, variable, short string) int {
	t.Helper()
	if given > 0 {
		return given
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), short))
	if err != nil || n < 1 {
		t.Fatalf("%s must be a number above 0: %v", variable, err)
	}
	return n
}

// eventually waits until the condition holds. The machine may have much else to do.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}
