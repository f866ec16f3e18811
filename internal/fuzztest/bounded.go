// Package fuzztest bounds what fuzzed code may take.
package fuzztest

import (
	"runtime"
	"testing"
	"time"
)

const (
	timeFor    = 10 * time.Second // a machine with much else to do
	timePerKB  = 10 * time.Millisecond
	bytesPerKB = 1 << 20
)

// Bounded runs f, and fails the test if it takes more time or memory than an input of size bytes is worth: 10 s and 10
// ms for each kB, and least bytes and 1 MB for each kB. What is quadratic in the input, or unbounded, takes more.
func Bounded(t *testing.T, size int, least uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	kb := size/1024 + 1
	if limit := timeFor + time.Duration(kb)*timePerKB; took > limit {
		t.Errorf("%d bytes took %v, at most %v are allowed", size, took, limit)
	}
	if got, limit := after.TotalAlloc-before.TotalAlloc, least+uint64(kb)*bytesPerKB; got > limit { //nolint:gosec // positive
		t.Errorf("%d bytes took %d bytes of memory, at most %d are allowed", size, got, limit)
	}
}
