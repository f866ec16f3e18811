package consumer

import "maps"

// queue holds the messages of one claim that are not finished, and decides which of them may be handled next. It is used under
// its claim's lock.
//
// Messages stand in lanes. A lane is handled in order, one message at a time; lanes are handled side by side, the one with the
// oldest message first: what is delivered again after a crash begins at the oldest message that is open. What the orders differ
// in is only which lane a message stands in: one for the whole partition, one per key, or one of its own.
type queue struct {
	order Order
	train *train           // the lane of PartitionOrder, where several of its messages are in work at once
	whole *lane            // the lane of PartitionOrder, where one is
	keyed map[string]*lane // the lanes of KeyOrder in which messages stand, and some in which none does
	idle  int              // those in which none does
	ready ready
}

// maxIdle bounds how many keys are remembered although no message of theirs is held: most keys come again, and a lane that stays
// is one that is not made again.
const maxIdle = 1000

// maxIdleKey is the longest key that is remembered so, in bytes.
const maxIdleKey = 256

// lane is a list of messages of which only the first may be handled. The first is waiting, running or parked.
type lane struct {
	key         string
	first, last *item
}

// newQueue returns an empty one. length is how many messages of a partition may be in work at once in PartitionOrder.
func newQueue(order Order, length int) *queue {
	q := &queue{order: order}
	switch order {
	case KeyOrder:
		q.keyed = map[string]*lane{}
	case PartitionOrder:
		q.whole = &lane{}
		if length > 1 {
			q.train = &train{length: length}
		}
	case Unordered:
	}
	return q
}

// push adds a message at the end of its lane.
func (q *queue) push(it *item) {
	if q.train != nil {
		q.train.push(it)
		return
	}
	l := q.laneOf(it)
	it.lane = l
	if l.first == nil {
		l.first, l.last = it, it
		q.ready.push(l)
		return
	}
	l.last.next = it
	l.last = it
}

func (q *queue) laneOf(it *item) *lane {
	switch {
	case q.order == PartitionOrder:
		return q.whole
	case q.order == Unordered || it.rec.Key == nil:
		return &it.own
	}
	if l := q.keyed[string(it.rec.Key)]; l != nil {
		if l.first == nil {
			q.idle--
		}
		return l
	}
	l := &lane{key: string(it.rec.Key)}
	q.keyed[l.key] = l
	return l
}

// hasReady reports whether next would return a message.
func (q *queue) hasReady() bool {
	if q.train != nil {
		return q.train.hasReady()
	}
	return len(q.ready) > 0
}

// next returns the message that may be handled now, or nil. It is running until it is finished or parked.
func (q *queue) next() *item {
	if q.train != nil {
		return q.train.next()
	}
	if len(q.ready) == 0 {
		return nil
	}
	return q.ready.pop().first
}

// finished removes a running message; the one behind it may be handled.
func (q *queue) finished(it *item) {
	if q.train != nil {
		q.train.finished(it)
		return
	}
	l := it.lane
	l.first, it.next = it.next, nil
	if l.first != nil {
		q.ready.push(l)
		return
	}
	l.last = nil
	if q.order == KeyOrder && it.rec.Key != nil {
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
		maps.DeleteFunc(q.keyed, func(_ string, l *lane) bool { return l.first == nil })
		q.idle = 0
	}
}

// park says that a running message has not finished, and does not run until unpark: it holds back its lane.
func (q *queue) park() {
	if q.train != nil {
		q.train.park()
	}
}

// unpark lets a parked message run again.
func (q *queue) unpark(it *item) {
	if q.train != nil {
		q.train.unpark(it)
		return
	}
	q.ready.push(it.lane)
}

// ready is a binary heap of lanes whose first message is waiting, by the offset of that message. It does what container/heap does, of
// which a tenth of the time of a fast handler's message in KeyOrder would be calls by way of an interface.
type ready []readyLane

type readyLane struct {
	offset int64 // of the first message, which stays while the lane is ready
	lane   *lane
}

func (r *ready) push(l *lane) {
	h := append(*r, readyLane{l.first.offset, l})
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
