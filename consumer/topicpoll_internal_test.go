package consumer

import (
	"slices"
	"testing"
	"time"
)

// A topic that is missing is asked for after a second, then after twice as long each time, and when it goes again after
// a second again.
func TestTopicsThatAreMissingAreAskedForSoon(t *testing.T) {
	t.Parallel()
	poll := topicPoll{10 * time.Second, missingPoll}
	var pauses []time.Duration
	for _, missing := range []bool{false, true, true, true, true, true, true, false, true, true} {
		pauses = append(pauses, poll.next(missing)/time.Second)
	}
	if want := []time.Duration{10, 1, 2, 4, 8, 10, 10, 10, 1, 2}; !slices.Equal(pauses, want) {
		t.Errorf("pauses of %d s, want %d", pauses, want)
	}
}
