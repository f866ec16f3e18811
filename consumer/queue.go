package consumer

import "maps"

// queue holds the messages of one claim that are not finished, and decides which of them may be handled next. It is
// used under its claim's lock.
//
// Messages stand in lanes. A lane is handled in order; lanes are handled side by side, the one with the oldest message
// first: what is delivered again after a crash begins at the oldest message that is open. What the orders differ in is
// only which lane a message stands in: one for the whole partition, one per key, or one of its own.
type queue struct {
	order  Order
	length int              // the most messages of a lane that are in work at once
	whole  *lane            // the lane of PartitionOrder
	keyed  map[string]*lane // the lanes of KeyOrder in which messages stand, and some in which none does
	idle   int              // those in which none does
	ready  [seats]ready
}

// maxIdle bounds how many keys are remembered although no message of theirs is held: most keys come again, and a lane
// that stays is one that is not made again.
const maxIdle = 1000

// maxIdleKey is the longest key that is remembered so, in bytes.
const maxIdleKey = 256

// newQueue returns an empty one. length is how many messages of a lane may be in work at once.
func newQueue(order Order, length int) *queue {
	q := &queue{order: order, length: length}
	switch order {
	case KeyOrder:
		q.keyed = map[string]*lane{}
	case PartitionOrder:
		q.whole = &lane{}
	case Unordered:
	}
	return q
}

// push adds a message at the end of its lane.
func (q *queue) push(it *item) {
	it.lane = q.laneOf(it)
	it.lane.push(it)
	q.offer(it.lane)
}

func (q *queue) laneOf(it *item) *lane {
	switch {
	case q.order == PartitionOrder:
		return q.whole
	case q.order == Unordered || it.rec.Key == nil:
		return &it.own
	}
	if l := q.keyed[string(it.rec.Key)]; l != nil {
		if l.empty() {
			q.idle--
		}
		return l
	}
	l := &lane{key: string(it.rec.Key)}
	q.keyed[l.key] = l
	return l
}

// offer has a lane stand among those that are ready, if it is.
func (q *queue) offer(l *lane) {
	it, s := l.candidate(q.length)
	switch {
	case it == nil:
		l.offered = false
	case !l.offered || l.at != it.offset || l.seat != s:
		l.offered, l.at, l.seat = true, it.offset, s
		q.ready[s].push(readyLane{it.offset, l})
	}
}

// hasReady reports whether next would return a message.
func (q *queue) hasReady(s seat) bool {
	for len(q.ready[s]) > 0 {
		if first := q.ready[s][0]; first.lane.offered && first.lane.at == first.offset && first.lane.seat == s {
			return true
		}
		q.ready[s].pop() // it has changed since
	}
	return false
}

// next returns the message that may be handled now in such a seat, or nil. It is running until it is finished or
// parked.
func (q *queue) next(s seat) *item {
	if !q.hasReady(s) {
		return nil
	}
	l := q.ready[s].pop()
	l.offered = false
	it := l.next(q.length)
	q.offer(l)
	return it
}

// finished removes a running message; the one behind it may be handled.
func (q *queue) finished(it *item) {
	l := it.lane
	l.finished(it, q.length)
	q.offer(l)
	if q.order == KeyOrder && it.rec.Key != nil && l.empty() {
		q.rest(l)
	}
}

// rest forgets an empty lane of a key, or keeps it for the next message of that key.
func (q *queue) rest(l *lane) {
	if len(l.key) > maxIdleKey {
		delete(q.keyed, l.key)
		return
	}
	if q.idle++; q.idle > maxIdle {
		maps.DeleteFunc(q.keyed, func(_ string, l *lane) bool { return l.empty() })
		q.idle = 0
	}
}

// park says that a running message has not finished, and does not run until unpark: it holds back its lane.
func (q *queue) park(it *item) {
	it.lane.park(q.length)
	q.offer(it.lane)
}

// unpark lets a parked message run again.
func (q *queue) unpark(it *item) {
	it.lane.unpark(it)
	q.offer(it.lane)
}

// ready is a binary heap of lanes of which a message may be handled, by the offset of that message. A lane that has
// changed since it was pushed stays in it until it comes to the top. It does what container/heap does, of which a tenth
// of the time of a fast handler's message in KeyOrder would be calls by way of an interface.
type ready []readyLane

type readyLane struct {
	offset int64
	lane   *lane
}

func (r *ready) push(l readyLane) {
	h := append(*r, l)
	i := len(h) - 1
	for added := h[i]; i > 0; {
		parent := (i - 1) / 2
		if h[parent].offset < added.offset {
			break
		}
		h[i], h[parent] = h[parent], added
		i = parent
	}
	*r = h
}

// pop takes the lane with the oldest message. There must be one.
func (r *ready) pop() *lane {
	h := *r
	oldest, last := h[0].lane, h[len(h)-1]
	h[len(h)-1] = readyLane{}
	h = h[:len(h)-1]
	*r = h
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].offset < h[child].offset {
			child++
		}
		if child >= len(h) || last.offset < h[child].offset {
			if len(h) > 0 {
				h[i] = last
			}
			return oldest
		}
		h[i] = h[child]
		i = child
	}
}
