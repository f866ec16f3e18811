package consumer

import (
	"context"
	"math"
	"testing"
	"time"
)

// grouping is a link that makes groups of so many messages.
type grouping struct {
	Handler
	group int
}

func (g *grouping) Group() int { return g.group }

// crashes is a CrashLoop.
type crashes struct{ Handler }

func (c *crashes) Link() Link { return LinkCrashLoop }

// How many messages are in work and held follows the order and what the links make of many.
func TestSizesOfATopic(t *testing.T) {
	t.Parallel()
	h := HandlerFunc(func(context.Context, *Message) error { return nil })
	groups := func(n int) Middleware {
		return func(next Handler) Handler { return &grouping{next, n} }
	}
	loop := func(next Handler) Handler { return &crashes{next} }
	for name, test := range map[string]struct {
		topic                 Topic
		workers, train, holds int
	}{
		"PartitionOrder":            {Topic{}, math.MaxInt, 1, 5000},
		"PartitionOrder, 3 workers": {Topic{Workers: 3}, 3, 1, 5000},
		"KeyOrder":                  {Topic{Order: KeyOrder}, 16, 1, 5000},
		"Unordered":                 {Topic{Order: Unordered}, 16, 1, 5000},
		"Unordered, 2,000 workers":  {Topic{Order: Unordered, Workers: 2000}, 2000, 1, 8000},
		"small groups":              {Topic{Order: Unordered, Middleware: []Middleware{groups(7)}}, 16, 1, 5000},
		"groups":                    {Topic{Order: KeyOrder, Middleware: []Middleware{groups(200)}}, 400, 200, 5000},
		"groups, 30 workers": {Topic{Order: KeyOrder, Workers: 30, Middleware: []Middleware{groups(200)}}, 30, 200,
			5000},
		"keys behind a CrashLoop":     {Topic{Order: KeyOrder, Middleware: []Middleware{loop, groups(200)}}, 400, 1, 5000},
		"large groups":                {Topic{Order: Unordered, Middleware: []Middleware{groups(1000)}}, 2000, 1, 8000},
		"a train":                     {Topic{Middleware: []Middleware{groups(200)}}, math.MaxInt, 200, 5000},
		"a long train":                {Topic{Middleware: []Middleware{groups(2000)}}, math.MaxInt, 2000, 8000},
		"groups of one":               {Topic{Middleware: []Middleware{groups(1)}}, math.MaxInt, 1, 5000},
		"two that make groups":        {Topic{Middleware: []Middleware{groups(200), groups(100)}}, math.MaxInt, 1, 5000},
		"a train behind a CrashLoop":  {Topic{Middleware: []Middleware{loop, groups(200)}}, math.MaxInt, 1, 5000},
		"a train in front of another": {Topic{Middleware: []Middleware{groups(200), groups(0)}}, math.MaxInt, 200, 5000},
	} {
		test.topic.Handler = h
		tp, err := newTopic(Config{Group: "g", Topics: map[string]Topic{"t": test.topic}}.withDefaults(), "t")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tp.workers.total != test.workers || tp.riders.total != test.workers || tp.train != test.train ||
			tp.partitionMessages != test.holds {
			t.Errorf("%s: %d workers, trains of %d, holds %d; want %d, %d, %d", name, tp.workers.total, tp.train,
				tp.partitionMessages, test.workers, test.train, test.holds)
		}
	}
}

// A handler is cancelled at the processing limit, and given up after as long again, half a minute at most; each once.
func TestGraceOfStuckHandlers(t *testing.T) {
	t.Parallel()
	for limit, grace := range map[time.Duration]time.Duration{time.Second: time.Second,
		5 * time.Minute: 30 * time.Second} {
		started, release := make(chan struct{}), make(chan struct{})
		cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error {
			close(started)
			<-release
			return nil
		})
		cl.topic.limit = limit
		feed(cl, 0)
		<-started
		began := cl.running[0].started
		for _, step := range []struct {
			at          time.Duration
			late, stuck bool
		}{
			{limit - time.Millisecond, false, false},
			{limit + time.Millisecond, true, false},
			{limit + 2*time.Millisecond, false, false},
			{limit + grace - time.Millisecond, false, false},
			{limit + grace + time.Millisecond, false, true},
			{limit + 2*grace, false, false},
		} {
			late, stuck := cl.late(began.Add(step.at))
			if len(late) > 0 != step.late || stuck != step.stuck {
				t.Errorf("limit %v, after %v: late %v, stuck %v", limit, step.at, late, stuck)
			}
		}
		close(release)
	}
}

// The time of a message that waits for the one before it has not begun.
func TestTimeOfAMessageBehindAnother(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}, 2), make(chan struct{})
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error {
		started <- struct{}{}
		<-release
		return nil
	})
	defer close(release)
	cl.topic.limit, cl.queue = time.Second, newQueue(PartitionOrder, 2)
	cl.topic.workers = newWorkers(Topic{Order: Unordered, Workers: 2})
	cl.topic.riders = newRiders(cl.topic.workers)
	feed(cl, 0, 1)
	<-started
	<-started
	began := cl.running[0].started
	late, _ := cl.late(began.Add(time.Minute))
	if _, ok := late[1]; ok || len(late) != 1 {
		t.Errorf("cancelled: %v, want the first one alone", late)
	}
	cl.running[0].trainTurn.Settle()
	second := began.Add(time.Minute) // since when it has its turn
	if late, _ = cl.late(second.Add(time.Second - time.Millisecond)); len(late) != 0 {
		t.Errorf("cancelled before its limit: %v", late)
	}
	if late, _ = cl.late(second.Add(time.Second + time.Millisecond)); late[1] == nil {
		t.Error("not cancelled at its limit")
	}
}

// A message that waits for its turn is not waited for when the one before it fails while the claim drains: that one has
// no other attempt. It has not failed itself.
func TestFailureOfATrainInADrain(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}, 2), make(chan struct{})
	cl, _ := testClaim(PartitionOrder, func(ctx context.Context, msg *Message) error {
		started <- struct{}{}
		if msg.Offset == 0 {
			<-release
			return RetryAfter(time.Hour, errTried)
		}
		<-ctx.Done() // as what waits for its turn does
		return ctx.Err()
	})
	cl.topic.onFailure, cl.queue = Stop, newQueue(PartitionOrder, 2)
	cl.topic.workers = newWorkers(Topic{Order: Unordered, Workers: 2})
	cl.topic.riders = newRiders(cl.topic.workers)
	cl.run.stop = func(err error) { t.Errorf("stopped: %v", err) }
	feed(cl, 0, 1)
	<-started
	<-started
	cl.stop()
	close(release)
	if !waitFor(cl.idle, time.Minute) {
		t.Fatal("it waits for a message that has no turn any more")
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if failed := cl.open.oldest.attempts(); failed != 1 {
		t.Errorf("%d attempts at the first have failed, want 1", failed)
	}
	if failed := cl.open.oldest.newer.attempts(); failed != 0 {
		t.Errorf("%d attempts at the second have failed, want none: it was released", failed)
	}
}

// Handlers are looked at four times in the shortest processing limit, and each second at least.
func TestHowOftenHandlersAreWatched(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits []time.Duration
		want   time.Duration
	}{
		{nil, time.Second},
		{[]time.Duration{0}, time.Second},
		{[]time.Duration{5 * time.Minute}, time.Second},
		{[]time.Duration{0, time.Minute, 2 * time.Second}, 500 * time.Millisecond},
		{[]time.Duration{time.Nanosecond}, time.Millisecond},
	} {
		r := &running{Consumer: &Consumer{topics: map[string]*topic{}}}
		for i, limit := range c.limits {
			r.topics[string(rune('a'+i))] = &topic{limit: limit}
		}
		if got := r.watchEvery(); got != c.want {
			t.Errorf("%v: every %v, want %v", c.limits, got, c.want)
		}
	}
}

// The line at the start says of Workers what is true: in PartitionOrder they are bounded, not so many.
func TestWorkersInTheFirstLine(t *testing.T) {
	t.Parallel()
	for want, topic := range map[string]Topic{
		"one for each partition":             {},
		"one for each partition, at most 16": {Workers: 16},
		"16":                                 {Order: KeyOrder},
		"3":                                  {Order: Unordered, Workers: 3},
	} {
		topic.Handler = HandlerFunc(func(context.Context, *Message) error { return nil })
		tp, err := newTopic(Config{Group: "g", Topics: map[string]Topic{"t": topic}}.withDefaults(), "t")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, a := range tp.describe() {
			found = found || a.Key == "workers" && a.Value.String() == want
		}
		if !found {
			t.Errorf("%v, want workers %q", tp.describe(), want)
		}
	}
}
