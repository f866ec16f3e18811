package relay

import (
	"testing"
	"time"
)

// What is parked is looked at again after a time that grows, and that grows with what a look at all of it takes, up to
// a minute; at once when something changes.
func TestParking(t *testing.T) {
	t.Parallel()
	p := parking{}
	wait := func(bucket int64) time.Duration { return time.Until(p[bucket].until).Round(time.Second / 2) }
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second,
		10 * time.Second} {
		if p.looked([]int64{1}, []int64{1}, time.Millisecond); wait(1) != want {
			t.Errorf("it waits for %v, want %v", wait(1), want)
		}
	}
	p.looked([]int64{1}, []int64{1}, 300*time.Millisecond)
	if wait(1) != 30*time.Second {
		t.Errorf("after a long look it waits for %v", wait(1))
	}
	p.looked([]int64{2, 3}, []int64{2, 3}, 200*time.Millisecond)
	if wait(3) != 50*time.Second {
		t.Errorf("beside others it waits for %v", wait(3))
	}
	p.looked([]int64{4}, []int64{4}, time.Hour)
	if wait(4) != time.Minute {
		t.Errorf("at most it waits for %v", wait(4))
	}
	now := bucketFacts{last: 7, blocked: 1, sum: "5"}
	p[1].until = time.Time{}
	if !p.open(1, now, false) { // its facts were not known
		t.Error("it is not looked at")
	}
	p.looked([]int64{1}, []int64{1}, time.Millisecond)
	if p.open(1, now, false) {
		t.Error("it is looked at although nothing has changed")
	}
	for name, change := range map[string]func() (bucketFacts, bool){
		"something to be sent": func() (bucketFacts, bool) { return now, true },
		"one less is blocked":  func() (bucketFacts, bool) { now.blocked = 0; return now, false },
		"another one is":       func() (bucketFacts, bool) { now.sum = "6"; return now, false },
	} {
		facts, fresh := change()
		if !p.open(1, facts, fresh) || !p.open(1, facts, false) {
			t.Errorf("%s: it is not looked at until it has been", name)
		}
		p.looked([]int64{1}, []int64{1}, time.Millisecond)
	}
	p.looked([]int64{1, 2}, nil, time.Millisecond)
	if len(p) != 2 || !p.open(1, now, false) {
		t.Error("what can be sent is still parked")
	}
}
