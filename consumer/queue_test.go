package consumer

import (
	"slices"
	"testing"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"
)

func numbered(n int64) *item { return &item{rec: &sarama.ConsumerMessage{Offset: n}} }

// offsetOf makes items readable in failures.
func offsetOf(it *item) int64 {
	if it == nil {
		return -1
	}
	return it.rec.Offset
}

func TestFifo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f fifo
		var model []*item
		pushed := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") { // in bursts, so that it grows from any place
					it := numbered(pushed)
					pushed++
					f.push(it)
					model = append(model, it)
				}
			},
			"pop": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					var want *item
					if len(model) > 0 {
						want, model = model[0], model[1:]
					}
					if got := f.pop(); got != want {
						t.Fatalf("pop: %d, want %d", offsetOf(got), offsetOf(want))
					}
				}
			},
			"": func(t *rapid.T) {
				if f.n != len(model) {
					t.Fatalf("%d items, want %d", f.n, len(model))
				}
				kept := 0
				for _, it := range f.ring {
					if it != nil {
						kept++
					}
				}
				if kept != f.n {
					t.Fatalf("the ring keeps %d items in memory, %d are in the queue", kept, f.n)
				}
			},
		})
	})
}

// The ring keeps its size while the queue stays short: no allocation per message.
func TestFifoDoesNotGrowWithoutNeed(t *testing.T) {
	t.Parallel()
	var f fifo
	it := numbered(0)
	for range 10000 {
		for range 16 {
			f.push(it)
		}
		for range 16 {
			f.pop()
		}
	}
	if len(f.ring) != 16 {
		t.Errorf("the ring has %d places for 16 items", len(f.ring))
	}
}

// partitionModel is the order of a partition, in the plainest form: all messages that are not finished, in a slice, and the state of
// the first. The others wait.
type partitionModel struct {
	open  []*item
	state string // of the first: waiting, running, parked
}

func (m *partitionModel) next() *item {
	if len(m.open) == 0 || m.state != "waiting" {
		return nil
	}
	m.state = "running"
	return m.open[0]
}

func TestPartitionQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue = &partitionQueue{}
		m := partitionModel{state: "waiting"}
		pushed := int64(0)
		var started, finished []int64
		next := func(t *rapid.T) {
			want := m.next()
			got := q.next()
			if got != want {
				t.Fatalf("next: %d, want %d (the first is %s)", offsetOf(got), offsetOf(want), m.state)
			}
			if got != nil {
				started = append(started, offsetOf(got))
			}
		}
		in := func(t *rapid.T, state string) *item {
			if m.state != state || len(m.open) == 0 {
				t.Skip("nothing is", state)
			}
			return m.open[0]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "n") {
					it := numbered(pushed)
					pushed++
					q.push(it)
					m.open = append(m.open, it)
				}
			},
			"next": next,
			"finished": func(t *rapid.T) {
				it := in(t, "running")
				q.finished(it)
				finished = append(finished, offsetOf(it))
				m.open, m.state = m.open[1:], "waiting"
			},
			"park": func(t *rapid.T) {
				q.park(in(t, "running"))
				m.state = "parked"
			},
			"unpark": func(t *rapid.T) {
				q.unpark(in(t, "parked"))
				m.state = "waiting"
			},
			"": func(t *rapid.T) {
				if !slices.IsSorted(started) || !slices.IsSorted(finished) {
					t.Fatalf("started %v, finished %v", started, finished)
				}
			},
		})
	})
}

// The steps of one parked message, spelled out.
func TestParkedMessageHoldsBackTheRest(t *testing.T) {
	t.Parallel()
	q := &partitionQueue{}
	a, b := numbered(1), numbered(2)
	expect := func(step string, want *item) {
		t.Helper()
		if got := q.next(); got != want {
			t.Fatalf("%s: %d starts, want %d", step, offsetOf(got), offsetOf(want))
		}
	}
	expect("empty", nil)
	q.push(a)
	q.push(b)
	expect("first", a)
	expect("while it runs", nil)
	q.park(a)
	expect("while it is parked", nil)
	q.unpark(a)
	expect("again", a)
	expect("while it runs again", nil)
	q.finished(a)
	expect("after it", b)
	q.finished(b)
	expect("empty again", nil)
}
