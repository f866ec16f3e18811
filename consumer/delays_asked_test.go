package consumer

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// A delay that is asked for has a floor and a cap, and Status says until when the message waits.
func TestDelaysAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		asked, want time.Duration
	}{
		{0, 10 * time.Millisecond},
		{-time.Hour, 10 * time.Millisecond},
		{math.MinInt64, 10 * time.Millisecond},
		{time.Nanosecond, 10 * time.Millisecond},
		{11 * time.Millisecond, 11 * time.Millisecond},
		{time.Minute, time.Minute},
		{time.Hour, time.Hour},
		{365 * 24 * time.Hour, time.Hour},
		{math.MaxInt64, time.Hour},
	} {
		topic := &topic{}
		before := time.Now()
		f := topic.judge(t.Context(), 0, history{}, RetryAfter(test.asked, errors.New("later")))
		after := time.Now()
		if f.delay != test.want || f.RetryAt.Before(before.Add(test.want)) || f.RetryAt.After(after.Add(test.want)) {
			t.Errorf("RetryAfter(%v): %v, at %v", test.asked, f.delay, f.RetryAt)
		}
	}
	due := time.Now().Add(48 * time.Hour)
	if f := (&topic{}).judge(t.Context(), 0, history{}, NotBefore(due)); f.RetryAt.Sub(due).Abs() > time.Minute {
		t.Errorf("not before %v: at %v", due, f.RetryAt)
	}
	if f := (&topic{}).judge(t.Context(), 0, history{}, NotBefore(time.Time{})); f.delay != 10*time.Millisecond {
		t.Errorf("not before a time that has passed: %v", f.delay)
	}
}

// A message whose handler asks for no delay is not attempted in a loop.
func TestNoDelayIsNoLoop(t *testing.T) {
	t.Parallel()
	const attempts = 5
	done := make(chan time.Time, 1)
	var first time.Time
	cl, _ := testClaim(PartitionOrder, func(_ context.Context, m *Message) error {
		if m.Attempt == 1 {
			first = time.Now()
		}
		if m.Attempt <= attempts {
			return RetryAfter(0, errors.New("at once"))
		}
		done <- time.Now()
		return nil
	})
	feed(cl, 0)
	if took := (<-done).Sub(first); took < attempts*10*time.Millisecond {
		t.Errorf("%d attempts within %v", attempts, took)
	}
}
