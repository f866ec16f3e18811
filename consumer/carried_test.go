package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/internal/errtype"
)

// unavailable is an error of which two attempts do not count.
type unavailable struct{}

func (unavailable) Error() string { return "away" }
func (unavailable) Excused() int  { return 2 }

// heir is the next claim of a partition, with what the one before has committed.
func heir(cl *claim, m *marks, h HandlerFunc) *claim {
	next, _ := testClaim(cl.topic.order, h)
	next.inherit(m.metadata())
	return next
}

// Age and attempts of a message that stays open outlast its claim, and so does the clock of the stall.
func TestOpenMessagesOutlastTheirClaim(t *testing.T) {
	t.Parallel()
	cl, m := testClaim(Unordered, func(_ context.Context, m *Message) error {
		if m.Offset == 3 && m.Attempt < 4 {
			return RetryAfter(time.Millisecond, unavailable{})
		}
		if m.Offset == 3 {
			return RetryAfter(time.Hour, unavailable{})
		}
		return nil
	})
	feed(cl, 0, 1, 3, 7) // 2 and 4 to 6 are gaps
	soon(t, "one stays", func() bool { s := cl.status(); return s.Held == 1 && s.OldestAttempts == 4 })
	cl.end(0)
	was := cl.status()
	time.Sleep(2 * time.Millisecond)

	seen := make(chan Message, 10)
	next := heir(cl, m, func(_ context.Context, m *Message) error {
		seen <- *m
		return RetryAfter(time.Hour, unavailable{})
	})
	if p := next.status(); p.Progress.UnixMilli() != was.Progress.UnixMilli() {
		t.Errorf("progress at %v, was %v", p.Progress, was.Progress)
	}
	feed(next, 3, 7)
	for range 2 {
		msg := <-seen
		switch msg.Offset {
		case 3:
			if msg.Attempt != 5 || msg.FirstAttempt.UnixMilli() != was.Failing.Since.UnixMilli() ||
				!errors.Is(msg.LastError, ErrEarlierAttempt) || excusedOf(msg.LastError) != 2 {
				t.Errorf("attempt %d since %v after %v, was %+v", msg.Attempt, msg.FirstAttempt, msg.LastError, was.Failing)
			}
		case 7:
			if msg.Attempt != 1 || msg.LastError != nil || msg.FirstAttempt.Before(next.since) {
				t.Errorf("what had finished comes as %+v", msg)
			}
		}
	}
	soon(t, "it has failed again", func() bool { return next.status().OldestAttempts == 5 })
	p := next.status()
	if p.OldestSince.UnixMilli() != was.OldestSince.UnixMilli() ||
		p.Failing.Since.UnixMilli() != was.Failing.Since.UnixMilli() {
		t.Errorf("open since %v, failing since %v; was %v, %v", p.OldestSince, p.Failing.Since, was.OldestSince,
			was.Failing.Since)
	}

	// Before it is attempted, too.
	waits := heir(cl, m, func(context.Context, *Message) error { return nil })
	waits.topic.workers = newWorkers(Topic{Order: Unordered, Workers: 1})
	waits.topic.workers.acquire(nil)
	feed(waits, 3)
	if f := waits.status().Failing; f == nil || f.Attempts != 4 || !errors.Is(f.Err, ErrEarlierAttempt) ||
		errtype.Of(f.Err) != "earlier_attempt" {
		t.Errorf("failing %+v", f)
	}
}

// A message that never fails, because each attempt is cut short by the end of its claim, gets old too.
func TestWhatIsCutShortGetsOld(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, _ *Message) error { <-ctx.Done(); return ctx.Err() }
	cl, m := testClaim(PartitionOrder, hangs)
	feed(cl, 5, 6)
	since := cl.status().OldestSince
	cl.end(0)
	for range 3 {
		time.Sleep(2 * time.Millisecond)
		next := heir(cl, m, hangs)
		m = next.session.(*marks)
		feed(next, 5, 6)
		if p := next.status(); p.OldestSince.UnixMilli() != since.UnixMilli() || p.OldestAttempts != 0 ||
			p.Progress.After(next.since) {
			t.Errorf("%+v, want it open since %v", p, since)
		}
		next.end(0)
		cl = next
	}
}

// While a message stays open it is carried within a second, without the end of its claim: a process can be killed.
func TestCarriedWhileTheClaimGoesOn(t *testing.T) {
	t.Parallel()
	cl, m := testClaim(Unordered, func(_ context.Context, m *Message) error {
		if m.Offset == 0 {
			return RetryAfter(time.Hour, unavailable{})
		}
		return nil
	})
	feed(cl, 0, 1, 2)
	soon(t, "it is carried", func() bool {
		cl.watch(time.Now())
		return strings.Contains(m.metadata(), ";0,")
	})
	if got := m.all(); len(got) != 1 || got[0] != 0 {
		t.Errorf("marks %v, want the place of the open message", got)
	}
}

// Of many that fail the oldest are carried, in what a broker takes.
func TestCarriedIsBounded(t *testing.T) {
	t.Parallel()
	cl, m := testClaim(Unordered, func(context.Context, *Message) error { return RetryAfter(time.Hour, unavailable{}) })
	var offsets []int64
	for i := range int64(500) {
		offsets = append(offsets, 1<<40+i)
	}
	feed(cl, offsets...)
	soon(t, "all have failed", func() bool { return cl.status().Parked == 500 })
	cl.end(0)
	c := readCarried(m.metadata(), TopicID{})
	if len(c.open) != maxCarried || c.open[0].offset != 1<<40 || c.open[maxCarried-1].offset != 1<<40+maxCarried-1 ||
		len(m.metadata()) > 2000 {
		t.Errorf("%d bytes, %+v", len(m.metadata()), c)
	}
}

// What another program wrote, another topic of the name, or a later version, is nothing.
func TestCarriedThatCannotBeRead(t *testing.T) {
	t.Parallel()
	id := TopicID{1, 2}
	c := carried{progress: time.UnixMilli(1_700_000_000_000), open: []carriedItem{{offset: 7, attempts: 2}}}
	for _, text := range []string{
		"", "something else", carriedMark, carriedMark + ";", carriedMark + "0102;1", c.text(TopicID{2, 1}), c.text(id) + ";",
		c.text(id) + ";x,1,1,1,1", c.text(id) + ";1,1,1,-1,0",
		strings.Replace(c.text(id), ";7,", ";99999999999999999999,", 1),
	} {
		if got := readCarried(text, id); len(got.open) != 0 {
			t.Errorf("%q: %+v", text, got)
		}
	}
	note, text := cutCarried("partitions=3" + c.text(id))
	if got := readCarried(text, id); note != "partitions=3" || len(got.open) != 1 {
		t.Errorf("%q, %+v", note, got)
	}
}

func TestCarriedIsReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Map(rapid.Int64Range(0, 4_000_000_000_000), unmilli)
		c := carried{progress: at.Draw(t, "progress")}
		for range rapid.IntRange(1, maxCarried).Draw(t, "n") {
			c.open = append(c.open, carriedItem{rapid.Int64Min(0).Draw(t, "offset"), at.Draw(t, "fetched"), at.Draw(t, "first"),
				rapid.IntRange(0, 1<<40).Draw(t, "attempts"), rapid.IntRange(0, 1<<40).Draw(t, "excused")})
		}
		note, text := cutCarried("a note" + c.text(TopicID{9}))
		got := readCarried(text, TopicID{9})
		if note != "a note" || fmt.Sprint(got) != fmt.Sprint(c) {
			t.Fatalf("%q %v, want %v", note, got, c)
		}
	})
}
