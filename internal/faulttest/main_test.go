package faulttest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var (
	full = flag.Bool("faults.full", false,
		"all faults in full length, with Kafka's own time-outs, and plain sarama beside einmal")
	showLog = flag.Bool("faults.log", false, "show what the members logged also if a test passes")
)

// form is how long and how much is tested.
type form struct {
	brokerSession time.Duration   // after which the cluster gives a silent broker up
	margin        time.Duration   // on top of it, until consumption must have resumed
	calm          time.Duration   // the longest pause where nothing is wrong
	freezes       []time.Duration // how long a node stands still
	down          time.Duration   // how long all are away
	cuts          int             // of each kind
}

var (
	short = form{brokerSession: 3 * time.Second, margin: 10 * time.Second, calm: 4 * time.Second,
		freezes: []time.Duration{15 * time.Second}, down: 5 * time.Second, cuts: 3}
	long = form{brokerSession: 9 * time.Second, margin: 7 * time.Second, calm: 2 * time.Second,
		freezes: []time.Duration{20 * time.Second, 35 * time.Second}, down: 30 * time.Second, cuts: 20}
)

func current() form {
	if *full {
		return long
	}
	return short
}

// need returns the cluster of all tests. It skips the test unless it is asked for.
func need(t *testing.T) *servers.Cluster {
	t.Helper()
	if !*full && os.Getenv(serverstest.EnvRequireKafka) != "1" {
		t.Skipf("it breaks a Kafka of three nodes for some minutes: set %s=1 for the short form, or -faults.full; and %s or %s",
			serverstest.EnvRequireKafka, servers.EnvKafkaImage, servers.EnvKafkaJars)
	}
	c, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var cluster = sync.OnceValues(func() (*servers.Cluster, error) {
	started = true
	return servers.StartCluster(context.Background(), servers.ClusterConfig{BrokerSession: current().brokerSession})
})

var started bool // cluster was called

// onlyFull skips a test that the short form leaves out, because others show the same.
func onlyFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("in the full form only (-faults.full): the short one has the same fault in another test")
	}
}

// TestMain is also the main of the children: a test starts the program that it runs in.
func TestMain(m *testing.M) {
	if text := os.Getenv(envChild); text != "" {
		os.Exit(childMain(text))
	}
	serverstest.ParallelTests()
	code := m.Run()
	fmt.Print(results.String()) //nolint:forbidigo // it is for the reader of the tests' output
	if started {
		if c, err := cluster(); err == nil {
			if err := c.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "stop the cluster:", err)
				code = max(code, 1)
			}
		}
	}
	if err := serverstest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the databases:", err)
		code = max(code, 1)
	}
	os.Exit(serverstest.Leaks(code))
}

// eventually asks until the answer is yes, and fails the test after d.
func eventually(t testing.TB, d time.Duration, what string, yes func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !yes() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
