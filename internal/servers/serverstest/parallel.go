package serverstest

import (
	"flag"
	"runtime"
	"strconv"
)

// ParallelTests makes more tests run side by side than there are processors, unless -parallel says something: tests
// that wait for time-outs, leases and rebalances leave a processor idle. A TestMain calls it before Main. It is not for
// tests that keep a processor or the database at work: more of them at once only makes each slower.
func ParallelTests() {
	const (
		name    = "test.parallel"
		perProc = 2
		atLeast = 4
		atMost  = 16 // each may hold a dozen connections, and a database of the tests' own takes some hundreds
	)
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		_ = flag.Set(name, strconv.Itoa(min(max(perProc*runtime.GOMAXPROCS(0), atLeast), atMost))) // it is a flag of package testing
	}
}
