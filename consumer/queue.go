package consumer

// queue holds the messages of one claim that are not finished, and decides which of them may be handled next. That decision is
// all that the orders differ in. A queue is used under its claim's lock.
//
// A message is waiting, running or parked. It is pushed as waiting; next makes it running; finished removes it; park makes a
// running message parked, and unpark lets it wait again, before everything that it holds back.
type queue interface {
	push(it *item)
	next() *item
	finished(it *item)
	park(it *item)
	unpark(it *item)
}

// partitionQueue is the order of the partition: one message at a time, each after the one before it has finished. A parked
// message holds back all that follow it.
type partitionQueue struct {
	waiting fifo
	head    *item // the message that is running or parked
	again   bool  // head is to run again
}

func (q *partitionQueue) push(it *item) { q.waiting.push(it) }

func (q *partitionQueue) next() *item {
	switch {
	case q.again:
		q.again = false
		return q.head
	case q.head != nil:
		return nil
	default:
		q.head = q.waiting.pop()
		return q.head
	}
}

func (q *partitionQueue) finished(*item) { q.head = nil }
func (q *partitionQueue) park(*item)     {} // head stays
func (q *partitionQueue) unpark(*item)   { q.again = true }

// fifo is a queue on a ring that grows by doubling.
type fifo struct {
	ring []*item
	head int
	n    int
}

func (f *fifo) push(it *item) {
	if f.n == len(f.ring) {
		grown := make([]*item, max(16, 2*len(f.ring)))
		k := copy(grown, f.ring[f.head:])
		copy(grown[k:], f.ring[:f.head])
		f.ring, f.head = grown, 0
	}
	f.ring[(f.head+f.n)%len(f.ring)] = it
	f.n++
}

func (f *fifo) pop() *item {
	if f.n == 0 {
		return nil
	}
	it := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	return it
}
