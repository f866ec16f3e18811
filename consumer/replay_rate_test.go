package consumer

import (
	"testing"
	"time"
)

// Turns are spaced out, and those that nobody took are not made up for.
func TestRate(t *testing.T) {
	t.Parallel()
	r, now := newRate(10), time.Now()
	for i := range 100 {
		if got, want := r.turn(now), time.Duration(i)*100*time.Millisecond-rateSlack; got != max(0, want) {
			t.Errorf("turn %d is in %v, want %v", i, got, want)
		}
	}
	later := now.Add(time.Hour)
	if first, second := r.turn(later), r.turn(later); first != 0 || second != 100*time.Millisecond-rateSlack {
		t.Errorf("after a pause: %v, %v", first, second)
	}
	free := newRate(-1)
	for range 100 {
		if d := free.turn(now); d != 0 {
			t.Errorf("without a limit: %v", d)
		}
	}
}
