package consumer

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// count is how often the log has a text.
func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// With OnFailure Stop a message that has failed is not attempted again while the others drain.
func TestStopMakesNoOtherAttempt(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int32
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error {
		attempts.Add(1)
		return errTried
	})
	cl.topic.onFailure = Stop
	stopped := make(chan error, 10)
	cl.run.stop = func(err error) { stopped <- err }
	feed(cl, 0)
	if err := received(t, stopped); err == nil {
		t.Error("it stops without an error")
	}
	soon(t, "it is parked", func() bool { return cl.status().Parked == 1 })
	time.Sleep(20 * time.Millisecond)
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// An error of the client is that of its partition. One that says that the metadata are too large ends them, once, and
// is none of reading.
func TestErrorsFindTheirPartition(t *testing.T) {
	t.Parallel()
	var log logBuffer
	one, _ := testClaim(PartitionOrder, nil)
	other, marked := testClaim(PartitionOrder, nil)
	other.partition, other.run = 1, one.run
	r := one.run
	r.claims, r.log = map[*claim]struct{}{one: {}, other: {}}, slog.New(slog.NewTextHandler(&log, nil))
	m := &membership{running: r}
	m.note(&sarama.ConsumerError{Topic: "t", Partition: 1, Err: sarama.ErrNotLeaderForPartition})
	m.note(&sarama.ConsumerError{Topic: "another", Partition: 0, Err: sarama.ErrNotLeaderForPartition})
	if a, b := one.status().FetchError, other.status().FetchError; a != nil || b == nil {
		t.Errorf("partition 0: %v, partition 1: %v", a, b)
	}
	other.note, other.carrying.text, other.marked = "partitions=2", " open=1;2", 7
	if got := other.metadata(); got != "partitions=2 open=1;2" {
		t.Errorf("%q", got)
	}
	marked.MarkOffset("t", 1, 7, other.metadata())
	for range 3 {
		m.note(&sarama.ConsumerError{Topic: "t", Partition: 0, Err: sarama.ErrOffsetMetadataTooLarge})
	}
	if n := log.count("refuses the metadata"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if got := marked.metadata(); got != "partitions=2" || other.metadata() != got || one.status().FetchError != nil {
		t.Errorf("it commits %q, and would commit %q; %v", got, other.metadata(), one.status().FetchError)
	}
}

// The partitions whose committed offsets are asked for are all of a topic that begins at the newest message, and those
// held of others.
func TestWhichOffsetsAreAsked(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	newest, oldest, group := b.Topic(t, 3), b.Topic(t, 3), serverstest.Group(t)
	s := testSession(t, b, group, newest, oldest)
	s.topics[newest].start = FromNewest()
	asked := s.asked(map[string][]int32{newest: {1}, oldest: {1}})
	slices.Sort(asked[newest])
	if !slices.Equal(asked[newest], []int32{0, 1, 2}) || !slices.Equal(asked[oldest], []int32{1}) {
		t.Errorf("%v", asked)
	}
}

// A look-up of the stable end that fails once is made again: no partition begins at its first message for it.
func TestStableEndIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	for range 5 {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic})
	}
	g := testGroupClient(t, group, b, nil)
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: 1})
	if end, err := g.stableEnd(topic, 0); end != 5 || err != nil {
		t.Errorf("%d, %v; want 5", end, err)
	}
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: -1})
	if end, err := g.stableEnd(topic, 0); err == nil {
		t.Errorf("nobody tells, and it is %d", end)
	}
}

// What is handed on has a line; a message that is not due has none from Info on.
func TestLinesOfOddEnds(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cl, _ := testClaim(PartitionOrder, nil)
	cl.run.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, res := range []Result{{}, {Skipped: true}, {Duplicate: true}, {HandedOn: errTried, Logged: true},
		{Dead: true, Logged: true}} {
		cl.logDone(&Message{Result: res})
	}
	due := time.Now().Add(time.Hour)
	cl.logFailed(&Failing{Attempts: 1, RetryAt: due, Err: NotBefore(due), waits: true}, &Message{})
	if log.count("msg=") != 0 {
		t.Errorf("%s", log.text.String())
	}
	cl.logDone(&Message{Result: Result{HandedOn: errTried}})
	cl.logDone(&Message{Result: Result{Dead: true, DeadErr: errTried}})
	cl.logFailed(&Failing{Attempts: 1, RetryAt: due, Err: errTried}, &Message{})
	for _, line := range []string{lineHandedOn, lineDeadLetter, lineWaits} {
		if log.count(line) != 1 {
			t.Errorf("%d times: %s", log.count(line), line)
		}
	}
}

// A message that was skipped has not met the database: it says nothing about whether that is back.
func TestSkippedMessageEndsNoOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		res Result
		met bool
	}{{Result{Skipped: true}, false}, {Result{Duplicate: true}, true}, {Result{}, true}} {
		cl, _ := testClaim(Unordered, nil)
		out := &cl.run.outages
		out.failed(cl.run.log, NeedDatabase, cl.topic.name, errTried)
		cl.logDone(&Message{Result: c.res})
		out.tick(cl.run.log, time.Now().Add(outageQuiet), func(string) bool { return true })
		if over := len(out.list()) == 0; over != c.met {
			t.Errorf("after %+v the outage is over: %v", c.res, over)
		}
	}
}

// A message that holds a partition up is told of once, from the second look on. Another one is told of too.
func TestHoldupIsToldOnce(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cl, _ := testClaim(Unordered, func(context.Context, *Message) error { return RetryAfter(time.Hour, errTried) })
	cl.run.log = slog.New(slog.NewTextHandler(&log, nil))
	feed(cl, 3, 4)
	soon(t, "both fail", func() bool { return cl.status().Parked == 2 })
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.pausedBy = LimitAhead
	look := func(want int) {
		t.Helper()
		if cl.tellAhead(); log.count("Limits.Ahead") != want {
			t.Errorf("told %d times, want %d", log.count("Limits.Ahead"), want)
		}
	}
	look(0)
	look(1)
	look(1)
	cl.open.remove(cl.open.oldest)
	look(1)
	look(2)
	look(2)
}

// What was reached is the offset behind the last that was delivered, or the one at which the claim began.
func TestReached(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(Unordered, func(context.Context, *Message) error { return nil })
	cl.first = 7
	if at := cl.reached(); at != 7 {
		t.Errorf("%d at the beginning", at)
	}
	feed(cl, 8, 11)
	if at := cl.reached(); at != 12 {
		t.Errorf("%d, want 12", at)
	}
}

// Commits that stop are told of once, and so is that they go on. Status says it meanwhile.
func TestStoppedCommitsAreToldOnce(t *testing.T) {
	t.Parallel()
	var log logBuffer
	r := &running{Consumer: &Consumer{}, log: slog.New(slog.NewTextHandler(&log, nil))}
	s := &session{membership: &membership{running: r}}
	now := time.Now()
	for range 3 {
		s.tellCommits(now, now.Add(-10*time.Second), 1, false, errTried)
	}
	s.tellCommits(now, now, 0, false, nil) // nothing waits, and nobody has told
	r.tick(now.Add(fetchErrFresh - time.Second))
	if d := r.Status().Degraded; len(d) != 1 || d[0].Need != NeedCommits || !d[0].Since.Equal(now.Add(-10*time.Second)) ||
		d[0].Failures != 3 || d[0].ErrorType == "" {
		t.Errorf("%+v", d)
	}
	if stopped, over := log.count("not committed any more"), log.count("waits for its commit"); stopped != 1 || over != 0 {
		t.Errorf("told %d times that they stopped, %d times that they go on", stopped, over)
	}
	for range 2 {
		s.tellCommits(now, now, 0, true, nil)
		r.tick(now.Add(2 * outageQuiet))
	}
	if over := log.count("waits for its commit"); over != 1 || len(r.Status().Degraded) != 0 {
		t.Errorf("told %d times that they go on, %+v", over, r.Status().Degraded)
	}
	s.tellCommits(now, now.Add(-10*time.Second), 1, false, nil)
	if d := r.Status().Degraded; len(d) != 1 || d[0].ErrorType != "not_committed" {
		t.Errorf("without an error: %+v", d)
	}
	r.tick(now.Add(fetchErrFresh + time.Minute)) // others have the partitions
	if d := r.Status().Degraded; len(d) != 0 {
		t.Errorf("nothing waits, and it is degraded: %+v", d)
	}
}

// How many partitions there were at first goes with what is committed from the first mark on.
func TestNoteOfTheFirstPartitions(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	newest, oldest, group := b.Topic(t, 3), b.Topic(t, 3), serverstest.Group(t)
	s := testSession(t, b, group, newest, oldest)
	s.topics[newest].start = FromNewest()
	none := map[int32]committed{1: {offset: -1}}
	s.committed = map[string]map[int32]committed{newest: none, oldest: none}
	for topic, want := range map[string]string{newest: "partitions=3", oldest: ""} {
		if c := s.committedOffset(claimOf{topic: topic, partition: 1}); c.note != want || c.offset != -1 {
			t.Errorf("%+v, want the note %q", c, want)
		}
	}
}

// fetching is a claim whose fetches tell the end of the log.
type fetching struct {
	sarama.ConsumerGroupClaim
	end int64
}

func (f fetching) HighWaterMarkOffset() int64 { return f.end }

// Where a broker did not tell the end of a log, lag is unknown until one does, or until fetches tell it again.
func TestLagIsKnownAgain(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error { return nil })
	feed(cl, 0)
	<-settled(cl)
	cl.source = fetching{end: 5}
	cl.pausedBy, cl.endLost = LimitAhead, true
	if !cl.needsEnd() {
		t.Error("the end of a paused partition is not asked for")
	}
	if lag := cl.status().Lag; lag != -1 {
		t.Errorf("lag %d while nobody tells the end", lag)
	}
	cl.pausedBy = ""
	if cl.needsEnd() {
		t.Error("the end is asked for although fetches tell it")
	}
	if lag := cl.status().Lag; lag != 4 {
		t.Errorf("lag %d, want 4: fetches tell the end", lag)
	}
}

// settled is closed when nothing of the claim is held any more.
func settled(cl *claim) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			cl.mu.Lock()
			held := cl.held
			cl.mu.Unlock()
			if held == 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return done
}
