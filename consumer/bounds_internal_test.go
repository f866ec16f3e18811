package consumer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var errTried = errors.New("tried")

// The error of a partition's fetches is of the last 30 s, since the first of a row; what is fetched ends it.
func TestErrorsOfFetchesArePresent(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error { return nil })
	age := func(d time.Duration) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.fetchErrAt, cl.unread = cl.fetchErrAt.Add(-d), cl.unread.Add(-d)
	}
	cl.cannotRead(errTried)
	first := cl.status()
	if first.FetchError != errTried || time.Since(first.Unread) > time.Minute { //nolint:errorlint // this very error
		t.Fatalf("%+v", first)
	}
	age(fetchErrFresh - time.Second)
	cl.cannotRead(errTried)
	if p := cl.status(); !p.Unread.Equal(first.Unread.Add(time.Second - fetchErrFresh)) {
		t.Errorf("unread since %v, want the first of the row", p.Unread)
	}
	age(fetchErrFresh + time.Second)
	if p := cl.status(); p.FetchError != nil || !p.Unread.IsZero() {
		t.Errorf("an error of long ago: %+v", p)
	}
	cl.cannotRead(errTried)
	if p := cl.status(); time.Since(p.Unread) > fetchErrFresh {
		t.Errorf("a new row is unread since %v", p.Unread)
	}
	feed(cl, 0)
	if p := cl.status(); p.FetchError != nil || !p.Unread.IsZero() {
		t.Errorf("something was fetched: %+v", p)
	}
}

// What finishes behind a steady flow is marked while that goes on.
func TestSteadyFlowIsMarked(t *testing.T) {
	t.Parallel()
	last, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	cl, m := testClaim(PartitionOrder, func(_ context.Context, msg *Message) error {
		if msg.Offset == 2 {
			close(last)
			<-release
		}
		time.Sleep(2 * settleEvery)
		return nil
	})
	cl.settled = time.Now()
	feed(cl, 0, 1, 2)
	<-last
	if got := m.all(); len(got) == 0 || got[len(got)-1] != 2 {
		t.Errorf("marks %v, want up to 2", got)
	}
}

// When all has finished nothing is held.
func TestNothingIsHeldInTheEnd(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(Unordered, func(context.Context, *Message) error { return nil })
	feed(cl, 0, 1, 2, 5)
	soon(t, "all finish", func() bool { return cl.status().Held == 0 })
	if p := cl.status(); p.Bytes != 0 || p.Running != 0 || p.Parked != 0 || p.Ahead != 0 || p.Next != 6 {
		t.Errorf("%+v", p)
	}
}

// An attempt that fails while its claim drains is one of those that the next owner knows of.
func TestFailureInADrainCounts(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	cl, m := testClaim(PartitionOrder, func(context.Context, *Message) error {
		close(started)
		<-release
		return RetryAfter(time.Hour, errTried)
	})
	feed(cl, 3)
	<-started
	cl.stop()
	close(release)
	cl.end(time.Minute)
	if n := len(cl.parked); n != 0 {
		t.Errorf("%d are parked in a claim that has ended", n)
	}
	next := heir(cl, m, func(context.Context, *Message) error { return nil })
	if c := next.carrying.came[3]; c.attempts != 1 {
		t.Errorf("%+v is carried", c)
	}
}

// A drain that is cut is counted, and one that is not is not.
func TestCutDrainsAreCounted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"returns": 0, "hangs": 1} {
		started := make(chan struct{})
		cl, _ := testClaim(PartitionOrder, func(ctx context.Context, _ *Message) error {
			close(started)
			if name == "hangs" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		feed(cl, 0)
		<-started
		cl.end(map[string]time.Duration{"returns": time.Minute, "hangs": 0}[name])
		cl.topic.totals.count(func(now *TopicTotals) {
			if now.DrainsCut != want {
				t.Errorf("a handler that %s: %d drains were cut", name, now.DrainsCut)
			}
		})
	}
}

// RetryAfter is no failure: OnFailure Stop does not see it.
func TestRetryAfterDoesNotStop(t *testing.T) {
	t.Parallel()
	f := (&topic{onFailure: Stop}).judge(t.Context(), 0, history{}, RetryAfter(time.Minute, errTried))
	if f == nil || f.RetryAt.IsZero() || f.delay != time.Minute {
		t.Errorf("%+v, want another attempt in a minute", f)
	}
}

// claimed is a session that has claims, and is over.
type claimed struct {
	marks
	ctx    context.Context
	claims map[string][]int32
}

func (c *claimed) Context() context.Context   { return c.ctx }
func (c *claimed) Claims() map[string][]int32 { return c.claims }
func (c *claimed) GenerationID() int32        { return 1 }
func (c *claimed) Commit()                    {}

// A session does not begin before the ids of its topics are known, nor where a start needs a committed offset that
// nobody tells.
func TestSessionThatCannotBegin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start Start
		fault kfake.Fault
		want  error
	}{
		"no ids": {Start{}, kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.TopicAuthorizationFailed, Count: -1},
			sarama.ErrTopicAuthorizationFailed},
		"no offsets": {FromNewest(), kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit,
			Count: -1}, nil},
		"all known": {Start{}, kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit, Count: -1},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			s := testSession(t, b, group, topic)
			s.topics[topic].start, s.sarama, s.end = test.start, newSaramaConfig(group, &strategy{}), func() {}
			test.fault.Group = map[bool]string{true: group}[test.fault.Keys[0] == kmsg.OffsetFetch]
			b.Fake.Fault(test.fault)
			over, cancel := context.WithCancel(t.Context())
			cancel()
			err := s.Setup(&claimed{ctx: over, claims: map[string][]int32{topic: {0}}})
			s.watching.Wait()
			if (err == nil) != (name == "all known") || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// The metadata that other programs have committed are not kept.
func TestMetadataOfOthers(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]committed{
		"":                            {offset: 7},
		"consumer-1, by hand":         {offset: 7},
		"partitions=3":                {offset: 7, note: "partitions=3"},
		"by hand open=1;2":            {offset: 7, carried: " open=1;2"},
		"partitions=3 open=1;2;3,4,5": {offset: 7, note: "partitions=3", carried: " open=1;2;3,4,5"},
	} {
		if got := readCommitted(&sarama.OffsetFetchResponseBlock{Offset: 7, Metadata: metadata}); got != want {
			t.Errorf("%q: %+v, want %+v", metadata, got, want)
		}
	}
}

// A message that was first attempted in the future, by the clock of another process, is taken for one that was not
// attempted.
func TestCarriedFromTheFuture(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	cl, _ := testClaim(Unordered, func(context.Context, *Message) error { return RetryAfter(time.Hour, errTried) })
	past := carriedItem{offset: 1, fetched: time.UnixMilli(1000), first: time.UnixMilli(2000), attempts: 3}
	cl.inherit((&carried{progress: hour, open: []carriedItem{{offset: 0, fetched: hour, first: hour, attempts: 3},
		past}}).text(TopicID{}))
	feed(cl, 0, 1)
	soon(t, "both fail", func() bool { return cl.status().Parked == 2 })
	p := cl.status()
	if p.OldestSince.After(time.Now()) || p.OldestAttempts != 1 || p.Failing.Since.After(time.Now()) ||
		p.Progress.After(time.Now()) {
		t.Errorf("%+v", p)
	}
	if it := cl.open.newest; it.attempts() != 4 || !it.first.Equal(past.first) || !it.fetched.Equal(past.fetched) {
		t.Errorf("of the past: %d attempts since %v, fetched at %v", it.attempts(), it.first, it.fetched)
	}
}

// A coordinator that is at hand gives the patience anew. One that answers that it is the coordinator is kept.
func TestCoordinatorAtHand(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	own, _ := coordinators(t, g, group)
	g.mu.Lock()
	g.deadline = time.Now().Add(-time.Hour)
	g.mu.Unlock()
	if g.lost() {
		t.Error("it is at hand, and lost")
	}
	if again, err := g.Coordinator(group); again != own || err != nil {
		t.Errorf("%v", err)
	}
	if g.mu.Lock(); time.Until(g.deadline) < patience/2 {
		t.Errorf("it is waited for until %v", g.deadline)
	}
	g.mu.Unlock()
	if err := g.RefreshCoordinator(group); err != nil {
		t.Fatal(err)
	}
	if again, err := g.Coordinator(group); again != own || !connected(own) || err != nil {
		t.Errorf("it was not kept: %v", err)
	}
}

// A message that has not failed is carried when it has been open for a second, at the end of the claim at once, and
// only the oldest one.
func TestWhatIsCarriedUnfailed(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error {
		close(started)
		<-release
		return nil
	})
	defer close(release)
	feed(cl, 0, 1)
	<-started
	cl.mu.Lock()
	defer cl.mu.Unlock()
	came := cl.open.oldest.fetched
	for _, c := range []struct {
		after time.Duration
		end   bool
		want  bool
	}{
		{carryAfter - time.Millisecond, false, false}, {carryAfter + time.Millisecond, false, true}, {0, true, true},
	} {
		cl.carrying = carrying{}
		cl.carry(came.Add(c.after), c.end)
		if open := readCarried(cl.carrying.text, cl.topicID).open; len(open) > 1 || (len(open) == 1) != c.want {
			t.Errorf("after %v, at the end: %v: %+v", c.after, c.end, open)
		}
	}
}

// A quarantine pauses its partition whatever else resumes it, and its end does not resume one that a limit pauses.
func TestQuarantineAndLimits(t *testing.T) {
	t.Parallel()
	cl, g, _ := limited(t, LimitAhead)
	cl.quarantine.paused = true
	if cl.examine(errTried); !g.is(0) {
		t.Error("it was resumed by something else, and stays so")
	}
	cl.pausedBy = LimitAhead
	if cl.examined(); !g.is(0) || cl.quarantine.paused {
		t.Errorf("paused by the limit: %v, quarantine %+v", g.is(0), cl.quarantine)
	}
	cl.pausedBy, cl.quarantine.paused = "", true
	if cl.examined(); g.is(0) {
		t.Error("its quarantine is over, and it is paused")
	}
}

// A claim that has stopped is not resumed: what is fetched would be thrown away. The time of a pause is counted to its
// end.
func TestEndOfAPause(t *testing.T) {
	t.Parallel()
	cl, g, _ := limited(t, LimitAhead)
	pause := func() {
		cl.pausedBy, cl.pausedAt = LimitPartitionMessages, time.Now().Add(-time.Hour)
		g.Pause(cl.ref())
	}
	pause()
	cl.stopped = true
	if cl.resumeIfLow(); !g.is(0) {
		t.Error("a claim that has stopped goes on")
	}
	cl.stopped = false
	if cl.resumeIfLow(); g.is(0) {
		t.Error("it holds next to nothing, and is paused")
	}
	cl.topic.totals.count(func(now *TopicTotals) {
		if now.Paused < time.Hour || now.Paused > 2*time.Hour {
			t.Errorf("paused for %v", now.Paused)
		}
	})
}

// An empty key is a key.
func TestEmptyKeyIsAKey(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cl, _ := testClaim(KeyOrder, func(context.Context, *Message) error { return RetryAfter(time.Hour, errTried) })
	cl.run.log = slog.New(slog.NewTextHandler(&log, nil))
	for o, key := range [][]byte{{}, {}, nil, nil} {
		cl.mu.Lock()
		cl.add(&sarama.ConsumerMessage{Topic: "t", Offset: int64(o), Key: key})
		cl.dispatch()
		cl.mu.Unlock()
		if log.says("a message has no key") != (key == nil) {
			t.Errorf("key %v: told %v", key, key != nil)
		}
	}
	soon(t, "one of the key, and both without one, are parked", func() bool { return cl.status().Parked == 3 })
}

// The defaults of a replay, and its processing limit.
func TestReplayBounds(t *testing.T) {
	t.Parallel()
	if rc := (ReplayConfig{}).withDefaults(); rc.PerSecond != 100 || rc.Attempts != 5 || rc.OnFailure != StopReplay {
		t.Errorf("%+v", rc)
	}
	if rc := (ReplayConfig{PerSecond: -1, Attempts: 2}).withDefaults(); rc.PerSecond != -1 || rc.Attempts != 2 {
		t.Errorf("%+v", rc)
	}
	waits := HandlerFunc(func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
	tp := &topic{chain: waits, limit: 10 * time.Millisecond, eventID: func(*Message) (string, error) { return "id", nil }}
	ended := make(chan *Attempt, 1)
	go func() { ended <- (&replay{topic: tp}).attempt(t.Context(), &Delivery{topic: tp}) }()
	if a := received(t, ended); !errors.Is(a.Err, ErrProcessingLimit) {
		t.Errorf("%v", a.Err)
	}
}
