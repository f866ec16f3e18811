package gather

import (
	"cmp"
	"slices"

	"github.com/einmal-go/einmal/internal/turn"
)

// queue is the calls that wait, in the order in which they have come, and those of each lane in the order of the lane.
// The Gatherer's mutex guards it.
type queue[Tx any] struct {
	calls []*call[Tx]
	lanes map[*turn.Lane]*waitingLane[Tx]
	round uint64 // of pick
}

// waitingLane is the calls of a lane that wait.
type waitingLane[Tx any] struct {
	lane  *turn.Lane
	calls []*call[Tx] // by their numbers; those of one number in the order in which they have come
	round uint64      // of pick that has last looked at it
}

func (q *queue[Tx]) len() int { return len(q.calls) }

// push puts a call behind the others.
func (q *queue[Tx]) push(c *call[Tx]) {
	q.calls = append(q.calls, c)
	if w := q.laneOf(c); w != nil {
		i, _ := slices.BinarySearchFunc(w.calls, c.turn.Number()+1, byNumber[Tx])
		w.calls = slices.Insert(w.calls, i, c)
	}
}

// pushFront puts calls before the others, in their order.
func (q *queue[Tx]) pushFront(calls []*call[Tx]) {
	q.calls = append(calls, q.calls...)
	for _, c := range slices.Backward(calls) {
		if w := q.laneOf(c); w != nil {
			i, _ := slices.BinarySearchFunc(w.calls, c.turn.Number(), byNumber[Tx])
			w.calls = slices.Insert(w.calls, i, c)
		}
	}
}

func byNumber[Tx any](c *call[Tx], number uint64) int { return cmp.Compare(c.turn.Number(), number) }

// laneOf is where the call waits in its lane, nil if it has none.
func (q *queue[Tx]) laneOf(c *call[Tx]) *waitingLane[Tx] {
	l := c.lane()
	if l == nil {
		return nil
	}
	w := q.lanes[l]
	if w == nil {
		if q.lanes == nil {
			q.lanes = map[*turn.Lane]*waitingLane[Tx]{}
		}
		w = &waitingLane[Tx]{lane: l}
		q.lanes[l] = w
	}
	c.waits = w
	return w
}

// remove takes a call out, if it is there.
func (q *queue[Tx]) remove(c *call[Tx]) {
	i := slices.Index(q.calls, c)
	if i < 0 {
		return
	}
	q.calls = slices.Delete(q.calls, i, i+1)
	c.picked = true
	q.forget(c)
	c.picked, c.waits = false, nil
}

// forget takes the calls of c's lane out of it that are picked.
func (q *queue[Tx]) forget(c *call[Tx]) {
	w := c.waits
	if w == nil {
		return
	}
	w.calls = slices.DeleteFunc(w.calls, (*call[Tx]).leaves)
	if len(w.calls) == 0 {
		delete(q.lanes, w.lane)
	}
}

// pick takes a group of up to size calls, in the order in which they have come; those of a lane together, in the order
// of the lane, where the first of them has come: no lane waits behind those that come without an order.
func (q *queue[Tx]) pick(size int) []*call[Tx] {
	q.round++
	p := picker[Tx]{size: size}
	for _, c := range q.calls {
		if p.full() {
			break
		}
		switch w := c.waits; {
		case w == nil:
			p.pick(c)
		case w.round != q.round:
			w.round = q.round
			p.pickLane(w.lane.Next(), w.calls)
		}
	}
	q.calls = slices.DeleteFunc(q.calls, (*call[Tx]).leaves)
	var last *waitingLane[Tx]
	for _, c := range p.picked {
		if c.waits != last {
			last = c.waits
			q.forget(c)
		}
	}
	for _, c := range p.picked {
		c.picked, c.waits = false, nil
	}
	return p.members
}

func (c *call[Tx]) leaves() bool { return c.picked }
