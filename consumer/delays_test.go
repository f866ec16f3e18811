package consumer

import (
	"testing"
	"time"
)

func TestKeepTryingDelay(t *testing.T) {
	t.Parallel()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if got := keepTryingDelay(i + 1); got != want*time.Second {
			t.Errorf("after %d attempts: %v, want %v", i+1, got, want*time.Second)
		}
	}
	for n := 7; n > 0; n += n/8 + 1 { // no shift may run over
		if got := keepTryingDelay(n); got != time.Minute {
			t.Errorf("after %d attempts: %v, want a minute", n, got)
		}
	}
}

func TestRejoinDelay(t *testing.T) {
	t.Parallel()
	for short, want := range []time.Duration{0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		if got := rejoinDelay(short); got != want*time.Millisecond {
			t.Errorf("after %d short sessions: %v, want %v", short, got, want*time.Millisecond)
		}
	}
	for short := 8; short > 0; short += short/8 + 1 {
		if got := rejoinDelay(short); got != 5*time.Second {
			t.Errorf("after %d short sessions: %v, want 5 s", short, got)
		}
	}
}
