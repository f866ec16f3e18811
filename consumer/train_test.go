package consumer

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// laneModel is a lane in the plainest form: its messages in slices.
type laneModel struct {
	waiting, running, parked, again []*item
	turned                          bool
	short, good                     int
}

func (m *laneModel) open() []*item { return slices.Concat(m.running, m.parked, m.again) }

// want is the message that may be handled now, and the seat that it takes.
func (m *laneModel) want(length int) (*item, seat) {
	older := func(a, b *item) int { return int(a.offset - b.offset) }
	switch open := m.open(); {
	case len(m.again) > 0:
		first := slices.MinFunc(m.again, older)
		if slices.MinFunc(open, older) == first {
			return first, worker
		}
	case len(m.waiting) == 0 || len(m.parked) > 0:
	case len(open) == 0:
		return m.waiting[0], worker
	case m.turned && len(open) < m.most(length):
		return m.waiting[0], rider
	}
	return nil, worker
}

func (m *laneModel) most(length int) int {
	if m.short > 0 {
		return min(length, m.short)
	}
	return length
}

func (m *laneModel) took(it *item, length int) {
	if len(m.open()) == 0 {
		m.turned = len(m.waiting) > 1 && m.most(length) > 1
	}
	m.waiting, m.again = remove(m.waiting, it), remove(m.again, it)
	m.running = append(m.running, it)
}

func (m *laneModel) finished(it *item, length int) {
	m.running = remove(m.running, it)
	if m.short == 0 {
		return
	}
	if m.good++; m.good == m.short {
		m.short, m.good = 2*m.short, 0
	}
	if m.short >= length {
		m.short = 0
	}
}

// A train hands out consecutive messages of a lane, at most its length at once, few after a failure; none behind one
// that is parked. What is parked comes again when nothing stands before it. Only what has nothing before it takes a
// worker, and no message is first in the order before all before it have finished.
func TestTrainsAgainstModel(t *testing.T) {
	t.Parallel()
	for _, order := range []Order{PartitionOrder, KeyOrder} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { checkTrains(t, order) })
		})
	}
}

func checkTrains(t *rapid.T, order Order) {
	length := rapid.IntRange(2, 6).Draw(t, "length")
	q := newQueue(order, length)
	names := []string{"a", "b", "c"}
	lanes := map[string]*laneModel{}
	for _, name := range names {
		lanes[name] = &laneModel{}
	}
	laneOf := func(it *item) *laneModel {
		if order == PartitionOrder {
			return lanes["a"]
		}
		return lanes[string(it.rec.Key)]
	}
	want := func(s seat) (oldest *item) {
		for _, l := range lanes {
			if it, seat := l.want(length); it != nil && seat == s && (oldest == nil || it.offset < oldest.offset) {
				oldest = it
			}
		}
		return oldest
	}
	one := func(t *rapid.T, of func(*laneModel) []*item) *item {
		var items []*item
		for _, name := range names {
			items = append(items, of(lanes[name])...)
		}
		if len(items) == 0 {
			t.Skip("there is none")
		}
		return rapid.SampledFrom(items).Draw(t, "item")
	}
	running := func(l *laneModel) []*item { return l.running }
	pushed := int64(0)
	t.Repeat(map[string]func(*rapid.T){
		"push": func(t *rapid.T) {
			for range rapid.IntRange(1, 10).Draw(t, "n") {
				it := numbered(pushed, []byte(rapid.SampledFrom(names).Draw(t, "key")))
				pushed++
				q.push(it)
				laneOf(it).waiting = append(laneOf(it).waiting, it)
			}
		},
		"next": func(t *rapid.T) {
			s := rapid.SampledFrom([]seat{worker, rider, rider}).Draw(t, "seat")
			it := want(s)
			if got := q.next(s); got != it {
				t.Fatalf("next: %d, want %d", offsetOf(got), offsetOf(it))
			}
			if it != nil {
				laneOf(it).took(it, length)
			}
		},
		"finished": func(t *rapid.T) {
			it := one(t, running)
			q.finished(it)
			laneOf(it).finished(it, length)
		},
		"park": func(t *rapid.T) {
			it := one(t, running)
			l := laneOf(it)
			q.park(it)
			l.running, l.parked = remove(l.running, it), append(l.parked, it)
			l.short, l.good = max(1, l.most(length)/2), 0
		},
		"unpark": func(t *rapid.T) {
			it := one(t, func(l *laneModel) []*item { return l.parked })
			l := laneOf(it)
			q.unpark(it)
			l.parked, l.again = remove(l.parked, it), append(l.again, it)
		},
		"": func(t *rapid.T) {
			for s := range seats {
				if q.hasReady(s) != (want(s) != nil) {
					t.Fatalf("hasReady: %v, next is %d", q.hasReady(s), offsetOf(want(s)))
				}
			}
			for _, l := range lanes {
				l.wantWaiting(t)
			}
		},
	})
}

func (m *laneModel) wantWaiting(t *rapid.T) {
	for _, it := range m.running {
		open := slices.ContainsFunc(m.open(), func(o *item) bool { return o.offset < it.offset })
		if it.waits() != open {
			t.Fatalf("message %d waits: %v, but one before it is open: %v", it.offset, it.waits(), open)
		}
	}
}

// held is a claim of trains whose handlers wait until they are released.
func held(length int) (cl *claim, started chan int64, release chan struct{}) {
	started, release = make(chan int64, 100), make(chan struct{})
	cl, _ = testClaim(KeyOrder, func(_ context.Context, m *Message) error {
		started <- m.Offset
		<-release
		return nil
	})
	cl.topic.train, cl.topic.riders, cl.queue = length, newRiders(cl.topic.workers), newQueue(KeyOrder, length)
	return cl, started, release
}

// What has come behind a message that was alone starts at once when it ends, although no other message comes. The wait
// of those behind the first is none of theirs: the processing limit counts from their turn.
func TestTrainStartsWhenAMessageEnds(t *testing.T) {
	t.Parallel()
	cl, started, release := held(5)
	feed(cl, 0)
	<-started
	feed(cl, 4, 8, 12, 16)
	release <- struct{}{}
	for range 4 {
		select {
		case <-started:
		case <-time.After(30 * time.Second):
			t.Fatal("a message is not in work although a train has room for it")
		}
	}
	cl.topic.limit = time.Minute
	late, stuck := cl.late(time.Now().Add(90 * time.Second))
	if len(late) != 1 || late[4] == nil || stuck {
		t.Errorf("%d messages are late, stuck: %v; want the first alone", len(late), stuck)
	}
	for range 4 {
		release <- struct{}{}
	}
}
