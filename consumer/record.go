package consumer

import (
	"context"
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
	first   time.Time // start of the first attempt
	failing *Failing  // what its attempts came to so far; nil before the first has failed

	cancel  atomic.Pointer[context.CancelCauseFunc] // of the attempt that runs, where the topic has a processing limit
	overrun bool                                    // it was cancelled for it

	lane         *lane
	next         *item // behind it in its lane
	older, newer *item // among the claim's open messages
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

// attempts is how many attempts have failed.
func (it *item) attempts() int {
	if it.failing == nil {
		return 0
	}
	return it.failing.Attempts
}

// message makes the Message of one attempt. Each attempt has its own, so that what a handler did to one is not seen by the
// next. Slices are cut to their length: sarama's have capacity that reaches into what follows them in the batch.
func (it *item) message() *Message {
	rec := it.rec
	m := &Message{
		Topic:     rec.Topic,
		Partition: rec.Partition,
		Offset:    rec.Offset,
		Key:       slices.Clip(rec.Key),
		Value:     slices.Clip(rec.Value),
		Timestamp: rec.Timestamp,
	}
	if len(rec.Headers) > 0 {
		m.Headers = make([]Header, 0, len(rec.Headers))
		for _, h := range rec.Headers {
			if h != nil {
				m.Headers = append(m.Headers, Header{Key: string(h.Key), Value: slices.Clip(h.Value)})
			}
		}
	}
	return m
}

// size is what the item keeps in memory, in bytes, roughly.
func (it *item) size() int {
	n := 256 + len(it.rec.Key) + len(it.rec.Value)
	for _, h := range it.rec.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return n
}
