package consumer

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// item is a message on its way through a claim. Its fields are guarded by the claim's lock, but for those that only its worker
// touches while it runs.
type item struct {
	rec     *sarama.ConsumerMessage
	fetched time.Time
	started time.Time // of the attempt that runs
	overrun bool      // that attempt was cancelled for the processing limit
	gaveUp  bool      // and OnStuck was applied
	history

	one     attempting                 // the first attempt; later ones are made when they are needed
	current atomic.Pointer[attempting] // the one that runs

	lane         *lane
	next         *item // behind it in its lane
	older, newer *item // among the claim's open messages
	slot         int   // among the running ones
}

// attempting is what an attempt has of its own.
type attempting struct {
	msg Message
	ctx attemptContext
}

// prepare makes message and context of an attempt. Each attempt has its own, so that what a handler did to one is not seen by the
// next.
func (it *item) prepare(cl *claim) *attempting {
	a := &it.one
	if it.failing != nil {
		a = &attempting{}
	}
	a.msg.fill(it.rec)
	a.msg.TopicID = cl.topicID
	a.ctx.parent, a.ctx.msg = cl.ctx, &a.msg //nolint:fatcontext // it is made anew for each attempt
	it.current.Store(a)
	return a
}

// fill copies the record. Slices are cut to their length: sarama's have capacity that reaches into what follows them in the
// batch.
func (m *Message) fill(rec *sarama.ConsumerMessage) {
	m.Topic, m.Partition, m.Offset, m.Timestamp = rec.Topic, rec.Partition, rec.Offset, rec.Timestamp
	m.Key, m.Value = slices.Clip(rec.Key), slices.Clip(rec.Value)
	if len(rec.Headers) == 0 {
		return
	}
	m.Headers = make([]Header, 0, len(rec.Headers))
	for _, h := range rec.Headers {
		if h != nil {
			m.Headers = append(m.Headers, Header{Key: string(h.Key), Value: slices.Clip(h.Value)})
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

// opened is the list of a claim's open messages in the order of the partition.
type opened struct{ oldest, newest *item }

func (o *opened) add(it *item) {
	if o.newest == nil {
		o.oldest, o.newest = it, it
		return
	}
	it.older, o.newest.newer = o.newest, it
	o.newest = it
}

func (o *opened) remove(it *item) {
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
