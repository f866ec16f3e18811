package consumer

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"
)

func numbered(n int64, key []byte) *item {
	return &item{rec: &sarama.ConsumerMessage{Offset: n, Key: key}, offset: n}
}

// offsetOf makes items readable in failures.
func offsetOf(it *item) int64 {
	if it == nil {
		return -1
	}
	return it.rec.Offset
}

// queueModel is a queue in the plainest form: the messages of each lane in a slice, and the lanes that are ready in
// another.
type queueModel struct {
	order   Order
	lanes   map[string][]*item
	ready   []string
	running []*item
	parked  []*item
}

func (m *queueModel) lane(it *item) string {
	switch {
	case m.order == PartitionOrder:
		return "all"
	case m.order == KeyOrder && it.rec.Key != nil:
		return "key " + string(it.rec.Key)
	default:
		return fmt.Sprint("offset ", it.rec.Offset)
	}
}

func (m *queueModel) push(it *item) {
	l := m.lane(it)
	m.lanes[l] = append(m.lanes[l], it)
	if len(m.lanes[l]) == 1 {
		m.ready = append(m.ready, l)
	}
}

func (m *queueModel) next() *item {
	if len(m.ready) == 0 {
		return nil
	}
	oldest := slices.MinFunc(m.ready,
		func(a, b string) int { return cmp.Compare(m.lanes[a][0].offset, m.lanes[b][0].offset) })
	it := m.lanes[oldest][0]
	m.ready = slices.DeleteFunc(m.ready, func(l string) bool { return l == oldest })
	m.running = append(m.running, it)
	return it
}

func (m *queueModel) finished(it *item) {
	l := m.lane(it)
	m.running = remove(m.running, it)
	m.lanes[l] = m.lanes[l][1:]
	if len(m.lanes[l]) > 0 {
		m.ready = append(m.ready, l)
	} else {
		delete(m.lanes, l)
	}
}

func remove(items []*item, it *item) []*item {
	return slices.DeleteFunc(items, func(i *item) bool { return i == it })
}

func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	for _, order := range []Order{PartitionOrder, KeyOrder, Unordered} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { checkQueue(t, order) })
		})
	}
}

func checkQueue(t *rapid.T, order Order) {
	q := newQueue(order, 1)
	m := queueModel{order: order, lanes: map[string][]*item{}}
	keys := rapid.SampledFrom([][]byte{nil, {}, []byte("a"), []byte("b"), []byte("c")})
	pushed := int64(0)
	one := func(t *rapid.T, items []*item) *item {
		if len(items) == 0 {
			t.Skip("there is none")
		}
		return rapid.SampledFrom(items).Draw(t, "item")
	}
	t.Repeat(map[string]func(*rapid.T){
		"push": func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				it := numbered(pushed, keys.Draw(t, "key"))
				pushed++
				q.push(it)
				m.push(it)
			}
		},
		"next": func(t *rapid.T) {
			if got, want := q.next(worker), m.next(); got != want {
				t.Fatalf("next: %d, want %d", offsetOf(got), offsetOf(want))
			}
		},
		"finished": func(t *rapid.T) {
			it := one(t, m.running)
			q.finished(it)
			m.finished(it)
		},
		"park": func(t *rapid.T) {
			it := one(t, m.running)
			q.park(it)
			m.running = remove(m.running, it)
			m.parked = append(m.parked, it)
		},
		"unpark": func(t *rapid.T) {
			it := one(t, m.parked)
			q.unpark(it)
			m.parked = remove(m.parked, it)
			m.ready = append(m.ready, m.lane(it))
		},
		"": func(t *rapid.T) {
			if q.hasReady(worker) != (len(m.ready) > 0) {
				t.Fatalf("hasReady: %v, but %d lanes are ready", q.hasReady(worker), len(m.ready))
			}
			if keyed := countKeyed(m.lanes); len(q.keyed)-q.idle != keyed {
				t.Fatalf("the queue has %d keys, %d of them idle, but %d have messages", len(q.keyed), q.idle, keyed)
			}
		},
	})
}

func countKeyed(lanes map[string][]*item) (n int) {
	for l := range lanes {
		if l[:1] == "k" {
			n++
		}
	}
	return n
}

// The steps of one parked message, spelled out.
func TestParkedMessageHoldsBackItsLane(t *testing.T) {
	t.Parallel()
	q := newQueue(KeyOrder, 1)
	a1, a2, b1 := numbered(1, []byte("a")), numbered(2, []byte("a")), numbered(3, []byte("b"))
	expect := func(step string, want *item) {
		t.Helper()
		if got := q.next(worker); got != want {
			t.Fatalf("%s: %d starts, want %d", step, offsetOf(got), offsetOf(want))
		}
	}
	expect("empty", nil)
	q.push(a1)
	q.push(a2)
	q.push(b1)
	expect("first", a1)
	expect("another key, while it runs or is parked", b1)
	expect("nothing else", nil)
	q.park(a1)
	expect("while it is parked", nil)
	q.unpark(a1)
	expect("again", a1)
	q.finished(b1)
	expect("while it runs again", nil)
	q.finished(a1)
	expect("after it", a2)
	q.finished(a2)
	expect("empty again", nil)
}

// Keys that come once are forgotten, and so are long ones.
func TestQueueForgetsKeys(t *testing.T) {
	t.Parallel()
	q := newQueue(KeyOrder, 1)
	for n := range int64(5000) {
		key := fmt.Append(nil, "key-", n)
		if n%2 == 0 {
			key = append(key, make([]byte, maxIdleKey)...)
		}
		q.push(numbered(n, key))
		if it := q.next(worker); it == nil || it.offset != n {
			t.Fatalf("next: %d, want %d", offsetOf(it), n)
		} else {
			q.finished(it)
		}
		if len(q.keyed) > maxIdle {
			t.Fatalf("%d keys are remembered", len(q.keyed))
		}
	}
	for key := range q.keyed {
		if len(key) > maxIdleKey {
			t.Fatalf("a key of %d bytes is remembered", len(key))
		}
	}
}
