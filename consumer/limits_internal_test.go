package consumer

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// limited is a claim with a small value of each limit, and a setter of what is compared with it.
func limited(t *testing.T, limit Limit) (cl *claim, g *pauses, set func(n int)) {
	t.Helper()
	cl, _ = testClaim(Unordered, nil)
	g = &pauses{paused: map[int32]bool{}}
	cl.group = g
	cl.run.hooks, cl.run.claims = newHookRunner(Hooks{}, cl.run.log), map[*claim]struct{}{}
	t.Cleanup(func() { cl.run.hooks.close() })
	cl.topic.partitionMessages = 1000
	cl.run.cfg.Limits = Limits{PartitionMessages: 1000, PartitionBytes: 1000, Messages: 1000, Bytes: 1000, Ahead: 1000}
	cl.held = 1
	switch limit {
	case LimitPartitionMessages:
		return cl, g, func(n int) { cl.held = n }
	case LimitPartitionBytes:
		return cl, g, func(n int) { cl.bytes = n }
	case LimitMessages:
		return cl, g, func(n int) { cl.run.load.messages.Store(int64(n)) }
	case LimitBytes:
		return cl, g, func(n int) { cl.run.load.bytes.Store(int64(n)) }
	case LimitAhead:
		if err := cl.tracker.Deliver(0); err != nil { // it stays open
			t.Fatal(err)
		}
		next := int64(1)
		return cl, g, func(n int) {
			if n < cl.tracker.Ahead() {
				if err := cl.tracker.Done(0); err != nil { // only the end of the oldest brings it down
					t.Fatal(err)
				}
			}
			for ; cl.tracker.Ahead() < n; next++ {
				if err := cl.tracker.Deliver(next); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Fatalf("limit %q", limit)
	return nil, nil, nil
}

// A partition is paused above each limit, not at it, and goes on at half of it, not before.
func TestPauseAboveALimitUntilHalfOfIt(t *testing.T) {
	t.Parallel()
	for _, limit := range allLimits {
		t.Run(string(limit), func(t *testing.T) {
			t.Parallel()
			cl, g, set := limited(t, limit)
			cl.mu.Lock()
			defer cl.mu.Unlock()
			steps := []struct {
				n      int
				paused bool
			}{{1000, false}, {1001, true}, {1000, true}, {501, true}, {500, false}, {501, false}, {1000, false}, {1001, true}}
			if limit == LimitAhead { // which comes down at once when its message has finished
				steps = steps[:2]
			}
			for i, step := range steps {
				set(step.n)
				cl.resumeIfLow()
				cl.pauseIfOver()
				if g.is(0) != step.paused {
					t.Fatalf("step %d, %d of 1000: paused %v, want %v", i, step.n, g.is(0), step.paused)
				}
				if want := map[bool]Limit{true: limit}[step.paused]; cl.pausedBy != want {
					t.Fatalf("step %d, %d of 1000: paused by %q, want %q", i, step.n, cl.pausedBy, want)
				}
			}
		})
	}
}

// A partition that is below its own limits again stays paused while all together are over theirs, unless it holds
// nothing.
func TestPauseGoesOnForTheTotal(t *testing.T) {
	t.Parallel()
	for _, total := range []Limit{LimitMessages, LimitBytes} {
		t.Run(string(total), func(t *testing.T) {
			t.Parallel()
			cl, g, set := limited(t, total)
			cl.mu.Lock()
			defer cl.mu.Unlock()
			cl.held = 1001
			cl.pauseIfOver()
			if cl.pausedBy != LimitPartitionMessages {
				t.Fatalf("paused by %q", cl.pausedBy)
			}
			set(1001)
			cl.held = 1
			if cl.resumeIfLow(); !g.is(0) || cl.pausedBy != total {
				t.Fatalf("below its own limit, with all over theirs: paused %v, by %q", g.is(0), cl.pausedBy)
			}
			if !cl.run.load.awaited.Load() {
				t.Fatal("nobody looks at it again when the load comes down")
			}
			cl.held = 0
			if cl.resumeIfLow(); g.is(0) {
				t.Fatal("it holds nothing, and starves")
			}
			if cl.pauseIfOver(); g.is(0) {
				t.Fatal("it holds nothing, and is paused")
			}
		})
	}
}

// A pause for the total ends although nothing of its own partition moves: whoever brings the load down ends it.
func TestPauseForTheTotalEnds(t *testing.T) {
	t.Parallel()
	cl, g, _ := limited(t, LimitMessages)
	other, _ := testClaim(Unordered, nil)
	other.run, other.group, other.partition = cl.run, g, 1
	cl.run.addClaim(cl)
	cl.run.addClaim(other)
	report := func(c *claim, held int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held = held
		c.report()
		c.pauseIfOver()
	}
	report(other, 990)
	if report(cl, 11); !g.is(0) {
		t.Fatal("not paused")
	}
	report(other, 490)
	time.Sleep(10 * time.Millisecond) // 501 are held
	if !g.is(0) {
		t.Fatal("resumed above half of the limit")
	}
	report(other, 489)
	soon(t, "it goes on", func() bool { return !g.is(0) })
}

// All that a message keeps in memory counts: key, value and headers.
func TestSizeOfAMessage(t *testing.T) {
	t.Parallel()
	text := func(n int) []byte { return []byte(strings.Repeat("x", n)) }
	size := func(r sarama.ConsumerMessage) int { return (&item{rec: &r}).size() }
	none := size(sarama.ConsumerMessage{})
	header := func(k, v int) *sarama.RecordHeader { return &sarama.RecordHeader{Key: text(k), Value: text(v)} }
	for _, test := range []struct {
		rec         sarama.ConsumerMessage
		least, most int
	}{
		{sarama.ConsumerMessage{Key: text(100)}, 100, 100},
		{sarama.ConsumerMessage{Value: text(1000)}, 1000, 1000},
		{sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{header(10, 1000)}}, 1010, 1010 + 100},
		{sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{header(1000, 10), header(0, 0)}}, 1010 + 48, 1010 + 200},
		{sarama.ConsumerMessage{Key: text(1), Value: text(2), Headers: []*sarama.RecordHeader{header(3, 4)}}, 10, 110},
	} {
		if got := size(test.rec) - none; got < test.least || got > test.most {
			t.Errorf("%d bytes beside the bookkeeping, want %d to %d", got, test.least, test.most)
		}
	}
}

// Those who wait for the load to come down are looked at when it is at most half of both limits.
func TestLoadIsLow(t *testing.T) {
	t.Parallel()
	limits := Limits{Messages: 1000, Bytes: 100}
	for _, c := range []struct {
		messages, bytes int
		low             bool
	}{{0, 0, true}, {500, 50, true}, {501, 0, false}, {0, 51, false}, {501, 51, false}} {
		var l load
		l.add(c.messages, c.bytes)
		if got := l.low(limits); got != c.low {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What pauses the fetches of a partition, a limit, a user or a batch that cannot be decoded, holds until the last of
// them is over.
func TestFetchesPausedForSeveralReasons(t *testing.T) {
	t.Parallel()
	user := func(cl *claim, yes bool) {
		if !yes {
			cl.run.userPauses.remove("t", nil)
		} else {
			cl.run.userPauses.set(&Pause{Topic: "t", Partition: wholeTopic}, nil)
		}
		cl.syncPause()
	}
	limit := func(cl *claim, yes bool) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		if cl.held = 0; yes {
			cl.held = 1001
		}
		cl.pauseIfOver()
		cl.resumeIfLow()
	}
	batch := func(cl *claim, yes bool) {
		if !yes {
			cl.examined()
		} else {
			cl.pauseUndecodable(0, errTried)
		}
	}
	reasons := []func(cl *claim, yes bool){user, limit, batch}
	for i, first := range reasons {
		for j, second := range reasons {
			cl, g, _ := limited(t, LimitPartitionMessages)
			first(cl, true)
			if second(cl, true); !g.is(0) {
				t.Errorf("%d, %d: it is not paused", i, j)
			}
			if first(cl, false); i != j && !g.is(0) {
				t.Errorf("%d, %d: fetched again although the other reason holds", i, j)
			}
			if second(cl, false); g.is(0) {
				t.Errorf("%d, %d: not fetched again", i, j)
			}
		}
	}
}

// The end of a user's pause starts nothing in a claim that lets go of its partition, and fetches nothing for it.
func TestEndOfAUsersPauseAfterTheEnd(t *testing.T) {
	t.Parallel()
	cl, g, _ := limited(t, LimitPartitionMessages)
	cl.run.userPauses.set(&Pause{Topic: "t", Partition: 0}, nil)
	cl.syncPause()
	cl.stop()
	cl.run.userPauses.remove("t", nil)
	if cl.syncPause(); !g.is(0) || cl.userPause != nil {
		t.Errorf("fetches paused: %v, by %+v", g.is(0), cl.userPause)
	}
}
