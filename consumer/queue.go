package consumer

// queue holds the messages of one claim that are not finished, and decides which of them may be handled next. It is used under
// its claim's lock.
//
// Messages stand in lanes. A lane is handled in order, one message at a time; lanes are handled side by side, in the order in
// which they became ready. What the orders differ in is only which lane a message stands in: one for the whole partition, one
// per key, or one of its own.
type queue struct {
	order Order
	whole *lane            // the lane of PartitionOrder
	keyed map[string]*lane // the lanes of KeyOrder in which messages stand
	ready ready
}

// lane is a list of messages of which only the first may be handled. The first is waiting, running or parked.
type lane struct {
	key         string
	first, last *item
	next        *lane // in the list of ready lanes
}

func newQueue(order Order) *queue {
	q := &queue{order: order}
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
	l := q.laneOf(it)
	it.lane = l
	if l.first == nil {
		l.first, l.last = it, it
		q.ready.add(l)
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
		return &lane{}
	}
	if l := q.keyed[string(it.rec.Key)]; l != nil {
		return l
	}
	l := &lane{key: string(it.rec.Key)}
	q.keyed[l.key] = l
	return l
}

// hasReady reports whether next would return a message.
func (q *queue) hasReady() bool { return q.ready.first != nil }

// next returns the message that may be handled now, or nil. It is running until it is finished or parked.
func (q *queue) next() *item {
	l := q.ready.take()
	if l == nil {
		return nil
	}
	return l.first
}

// finished removes a running message; the one behind it may be handled.
func (q *queue) finished(it *item) {
	l := it.lane
	l.first, it.next = it.next, nil
	if l.first != nil {
		q.ready.add(l)
		return
	}
	l.last = nil
	if q.order == KeyOrder && it.rec.Key != nil {
		delete(q.keyed, l.key)
	}
}

// unpark lets a message run again that was running and not finished: until then it holds back its lane.
func (q *queue) unpark(it *item) { q.ready.add(it.lane) }

// ready is the list of lanes whose first message is waiting.
type ready struct{ first, last *lane }

func (r *ready) add(l *lane) {
	if r.first == nil {
		r.first, r.last = l, l
		return
	}
	r.last.next = l
	r.last = l
}

func (r *ready) take() *lane {
	l := r.first
	if l == nil {
		return nil
	}
	r.first, l.next = l.next, nil
	if r.first == nil {
		r.last = nil
	}
	return l
}
