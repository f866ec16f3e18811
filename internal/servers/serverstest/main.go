// Package serverstest gives tests what they run on: a PostgreSQL schema and a Kafka topic of their own. It finds or
// starts the servers by package servers, one database for a test binary, when the first test asks for it.
//
// Each package that uses it hands its TestMain over:
//
//	func TestMain(m *testing.M) { serverstest.Main(m) }
//
// EINMAL_SERVERS_LOG names a file to which a line is appended for each server that a test binary used.
package serverstest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests, stops the servers that they started, fails if a goroutine is left
// over, and exits.
func Main(m *testing.M) {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the databases:", err)
		code = max(code, 1)
	}
	os.Exit(Leaks(code))
}

// Stop stops the databases that were started for this test binary. Main calls it; a TestMain that has servers of its
// own to stop, and so cannot use Main, must. No test may run any more.
func Stop() error { return errors.Join(pooler.close(), version17.close(), shared.close()) }

// Leaks is the exit status of tests that ended with code: 1 if they passed and left a goroutine behind that does not
// end soon. Those of tests that failed say nothing. sarama's metrics ticker is the one goroutine that may stay: it
// belongs to its library's life and cannot be stopped.
func Leaks(code int) int {
	if code != 0 {
		return code
	}
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if err = goleak.Find(goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "the tests passed and left goroutines behind:", err)
	return 1
}
