package middleware

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// waiting is the error of a message that waits for its dead letter to be written. It is found again in the next
// attempt's LastError.
type waiting struct {
	error              // for which the message is given up
	turn     time.Time // when it may be written
	failures int       // attempts to write it that have failed
	own      error     // of the last of them
}

func (w *waiting) Error() string {
	if w.own == nil {
		return fmt.Sprintf("the dead letter waits for its turn (DeadLetterConfig.PerSecond): %v", w.error)
	}
	return fmt.Sprintf("the dead letter was not written: %v: %v", w.own, w.error)
}

func (w *waiting) Unwrap() []error {
	if w.own == nil {
		return []error{w.error}
	}
	return []error{w.own, w.error}
}

// waitingBefore returns what is known of the message from the attempt before.
func waitingBefore(last error) *waiting {
	if before, ok := errors.AsType[*waiting](last); ok {
		return &waiting{turn: before.turn, failures: before.failures}
	}
	return &waiting{}
}

// turns says when each of those who ask may go on, in the order in which they ask: so many at once, and so many in each
// second. It remembers one time, however many wait.
type turns struct {
	interval time.Duration // 0 for no limit
	burst    time.Duration

	mu   sync.Mutex
	last time.Time // when the last one's would have been without a burst
}

func newTurns(perSecond float64, burst time.Duration) *turns {
	if perSecond < 0 {
		return &turns{}
	}
	return &turns{interval: max(1, time.Duration(float64(time.Second)/perSecond)), burst: burst}
}

// next returns when the caller may go on, now or later.
func (t *turns) next(now time.Time) time.Time {
	if t.interval == 0 {
		return now
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.Before(now) {
		t.last = now
	}
	turn := t.last.Add(-t.burst)
	t.last = t.last.Add(t.interval)
	if turn.Before(now) {
		return now
	}
	return turn
}

// seldomEvery is how often something is said that happens to many messages.
const seldomEvery = time.Minute

// seldom allows one of many in a minute.
type seldom struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// now reports whether to go on, and how many were counted since the last time, this one included.
func (s *seldom) now(now time.Time) (count int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if !s.last.IsZero() && now.Sub(s.last) < seldomEvery {
		return 0, false
	}
	count, s.last, s.count = s.count, now, 0
	return count, true
}
