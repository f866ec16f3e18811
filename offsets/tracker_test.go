package offsets

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	var tr Tracker
	must(t, tr.Deliver(7))
	must(t, tr.Done(7))
	for _, c := range []struct {
		call string
		err  error
		want error
	}{
		{"deliver the same again", tr.Deliver(7), ErrNotAscending},
		{"deliver an older one", tr.Deliver(0), ErrNotAscending},
		{"deliver a negative one", tr.Deliver(-1), ErrInvalidOffset},
		{"deliver the last int64", tr.Deliver(math.MaxInt64), ErrInvalidOffset},
		{"done twice", tr.Done(7), ErrUnknownOffset},
		{"done but never delivered", tr.Done(8), ErrUnknownOffset},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.call, c.err, c.want)
		}
	}
	if err := tr.Deliver(math.MaxInt64 - 1); err != nil {
		t.Errorf("the highest offset is refused: %v", err)
	}
}

func TestZeroTrackerIsEmpty(t *testing.T) {
	t.Parallel()
	var tr Tracker
	if err := tr.Done(0); !errors.Is(err, ErrUnknownOffset) {
		t.Errorf("Done on an empty tracker: %v", err)
	}
	newPair().compare(t)
}

// A message that is stuck for hours, while 20 million pass it side by side, costs no memory for them.
func TestStuckMessageCostsNoMemory(t *testing.T) {
	t.Parallel()
	const behind, atOnce = 20_000_000, 16
	var tr Tracker
	must(t, tr.Deliver(0))
	for first := int64(1); first < behind; first += 2 * atOnce {
		for i := range int64(atOnce) {
			must(t, tr.Deliver(first+2*i)) // each second offset was compacted away
		}
		for i := int64(atOnce - 1); i >= 0; i-- {
			must(t, tr.Done(first+2*i))
		}
	}
	if tr.Ahead() != 1+behind/2 || tr.InFlight() != 1 {
		t.Fatalf("%d ahead, %d in flight", tr.Ahead(), tr.InFlight())
	}
	if n := len(tr.window.slots); n > 4*minRing {
		t.Errorf("%d slots", n)
	}
	must(t, tr.Done(0))
	if offset, _ := tr.Committable(); offset != behind || tr.Ahead() != 0 {
		t.Errorf("Committable() = %d with %d ahead, want %d", offset, tr.Ahead(), behind)
	}
}

// An open message costs at most 80 bytes, however many there are.
func TestWhatAnOpenMessageCosts(t *testing.T) {
	t.Parallel()
	var tr Tracker
	for n := range int64(100_000) {
		must(t, tr.Deliver(n))
		if cost := uintptr(len(tr.window.slots)) * unsafe.Sizeof(entry{}) / uintptr(n+1); n >= minRing && cost > 80 {
			t.Fatalf("%d open messages cost %d bytes each", n+1, cost)
		}
	}
}

// A message that is stuck while all others, delivered before, finish: the space that they took is given back later.
func TestStuckMessage(t *testing.T) {
	t.Parallel()
	const behind = 100_000
	var tr Tracker
	for offset := range int64(behind) {
		must(t, tr.Deliver(offset))
	}
	for offset := int64(1); offset < behind; offset++ {
		must(t, tr.Done(offset))
	}
	if _, ok := tr.Committable(); ok || tr.InFlight() != 1 {
		t.Fatalf("committable: %v, in flight: %d, want nothing and 1", ok, tr.InFlight())
	}
	must(t, tr.Done(0))
	if offset, _ := tr.Committable(); offset != behind {
		t.Fatalf("Committable() = %d, want %d", offset, behind)
	}
	for offset := int64(behind); len(tr.window.slots) > minRing; offset++ {
		if offset > 4*behind {
			t.Fatalf("after %d more messages, one at a time, there are still %d slots", offset-behind, len(tr.window.slots))
		}
		must(t, tr.Deliver(offset))
		must(t, tr.Done(offset))
	}
}

// steady returns a function that finishes one of inFlight messages and delivers another. Where there are two or more,
// neighbours finish in reverse, so that every second one waits behind an open one.
func steady(tb testing.TB, inFlight int64) (step func()) {
	tb.Helper()
	var tr Tracker
	for offset := range inFlight {
		must(tb, tr.Deliver(offset))
	}
	n := int64(0)
	return func() {
		done := n
		if inFlight > 1 {
			done ^= 1
		}
		if tr.Done(done) != nil || tr.Deliver(n+inFlight) != nil { // not must: its Helper is slower than the tracker
			panic("refused")
		}
		n++
	}
}

func TestNoAllocationInSteadyState(t *testing.T) {
	for _, inFlight := range []int64{1, 10_000} {
		step := steady(t, inFlight)
		if n := testing.AllocsPerRun(100_000, step); n != 0 {
			t.Errorf("%d in flight: %v allocations a message", inFlight, n)
		}
	}
}

// Filling to 10,000 and draining to none, again and again, is a steady state too.
func TestNoAllocationInWaves(t *testing.T) {
	const wave = 10_000
	var tr Tracker
	next := int64(0)
	n := testing.AllocsPerRun(20, func() {
		for range wave {
			must(t, tr.Deliver(next))
			next++
		}
		for offset := next - wave; offset < next; offset++ {
			must(t, tr.Done(offset))
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a wave", n)
	}
}

func BenchmarkTracker(b *testing.B) {
	for _, inFlight := range []int64{1, 100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			step := steady(b, inFlight)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
