package consumer

import (
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/turn"
)

// item is a message on its way through a claim. Its fields are guarded by the claim's lock, but for those that only its
// worker touches while it runs. It is used again for another message once this one has finished.
type item struct {
	rec     *sarama.ConsumerMessage
	offset  int64
	fetched time.Time
	parking int64     // the number of the last time it was parked
	due     time.Time // until which it was parked because it was not due; zero if it was not
	turn    time.Time // when its worker came to this claim
	started time.Time // of the attempt that runs
	overrun bool      // that attempt was cancelled for the processing limit
	gaveUp  bool      // and OnStuck was applied
	history

	current *attempting // the attempt that runs

	trainTurn *turn.Turn // its place among the messages of a train; nil without one

	lane         *lane
	own          lane  // its lane where it shares none
	next         *item // behind it in its lane, or among the spare ones
	older, newer *item // among the claim's open messages
	slot         int   // among the running ones
}

// attempting is what an attempt has of its own, for what a handler did to a message not to be seen by the next one, or
// by one that was kept. It is never used again.
type attempting struct {
	msg     Message
	ctx     attemptContext
	headers [2]Header // of the message, if it has no more
}

// freelist holds what a claim makes in advance, as single allocations would be a third of what a fast handler's message
// costs. It is used under the claim's lock.
type freelist struct {
	items    *item // to be used again
	left     int   // of these
	attempts []attempting
}

const (
	// maxSpare bounds the items that are kept for later.
	maxSpare = 1024
	// freeItems and freeAttempts are made at once. A handler that keeps a Message keeps its neighbours in memory.
	freeItems    = 64
	freeAttempts = 16
)

// item returns an empty one.
func (s *freelist) item() *item {
	if s.items == nil {
		made := make([]item, freeItems)
		for i := range made {
			s.put(&made[i])
		}
	}
	it := s.items
	s.items, it.next = it.next, nil
	s.left--
	return it
}

// put takes an item back that nothing refers to any more.
func (s *freelist) put(it *item) {
	if s.left >= maxSpare {
		return
	}
	*it = item{next: s.items}
	s.items = it
	s.left++
}

// attempt returns an empty one.
func (s *freelist) attempt() *attempting {
	if len(s.attempts) == 0 {
		s.attempts = make([]attempting, freeAttempts)
	}
	a := &s.attempts[0]
	s.attempts = s.attempts[1:]
	return a
}

// fill copies the record. Slices are cut to their length: sarama's have capacity that reaches into what follows them in
// the batch.
func (a *attempting) fill(rec *sarama.ConsumerMessage, names *names) {
	m := &a.msg
	m.Topic, m.Partition, m.Offset, m.Timestamp = rec.Topic, rec.Partition, rec.Offset, rec.Timestamp
	m.Key, m.Value = slices.Clip(rec.Key), slices.Clip(rec.Value)
	n := len(rec.Headers)
	switch {
	case n == 0:
		return
	case n <= len(a.headers):
		m.Headers = a.headers[:0:n]
	default:
		m.Headers = make([]Header, 0, n)
	}
	for _, h := range rec.Headers {
		if h != nil {
			m.Headers = append(m.Headers, Header{Key: names.name(h.Key), Value: slices.Clip(h.Value)})
		}
	}
}

// size is what the item keeps in memory, in bytes, roughly.
func (it *item) size() int {
	n := 1024 + len(it.rec.Key) + len(it.rec.Value)
	for _, h := range it.rec.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return n
}

// openItems is the list of a claim's open messages in the order of the partition.
type openItems struct{ oldest, newest *item }

func (o *openItems) add(it *item) {
	if o.newest == nil {
		o.oldest, o.newest = it, it
		return
	}
	it.older, o.newest.newer = o.newest, it
	o.newest = it
}

func (o *openItems) remove(it *item) {
	if it.older != nil {
		it.older.newer = it.newer
	} else {
		o.oldest = it.newer
	}
	if it.newer != nil {
		it.newer.older = it.older
	} else {
		o.newest = it.older
	}
	it.older, it.newer = nil, nil
}
