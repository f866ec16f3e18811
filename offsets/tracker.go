package offsets

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

var (
	// ErrInvalidOffset is returned by Deliver for an offset that no message can have: a negative one, or math.MaxInt64,
	// behind which no offset could be committed.
	ErrInvalidOffset = errors.New("invalid offset")

	// ErrNotAscending is returned by Deliver for an offset that is not above all that were delivered before. A partition
	// that starts again at an older offset needs a new Tracker.
	ErrNotAscending = errors.New("offsets must ascend")

	// ErrUnknownOffset is returned by Done for an offset that was never delivered, or that is already done.
	ErrUnknownOffset = errors.New("unknown offset")
)

// Tracker follows the messages of one partition from their delivery to their end. The zero value is ready to use.
//
// Deliver takes constant time, Done time logarithmic in the number of open messages, both amortized. So does memory, at
// most 80 bytes, grow with the number of open messages alone: what has finished behind an open message is kept as a
// number of that message, so a message that stays open for ever costs nothing for what passes it. Memory shrinks again
// some time after the number has; in a steady state nothing is allocated.
//
// A Tracker is not safe for concurrent use. After an error it is as it was before the call.
type Tracker struct {
	window ring  // the open messages, in order, and some that are done; its first is always open
	open   int   // messages in window that are not done
	ahead  int   // what Ahead returns
	next   int64 // the lowest offset that Deliver accepts
	commit int64 // what Committable returns; 0 while nothing may be committed, as the lowest possible value is 1
}

// Deliver notes that the message at offset was handed out. Offsets must ascend; gaps are normal. The error wraps
// ErrInvalidOffset or ErrNotAscending.
func (t *Tracker) Deliver(offset int64) error {
	if offset < 0 || offset == math.MaxInt64 {
		return fmt.Errorf("%w: %d was delivered", ErrInvalidOffset, offset)
	}
	if offset < t.next {
		return fmt.Errorf("%w: %d was delivered after %d", ErrNotAscending, offset, t.next-1)
	}
	t.window.push(entry{offset: offset, last: offset, messages: 1})
	t.open++
	t.ahead++
	t.next = offset + 1
	return nil
}

// Done notes that the message at offset has finished. The error wraps ErrUnknownOffset.
func (t *Tracker) Done(offset int64) error {
	i := t.find(offset)
	if i == t.window.len || t.window.at(i).offset != offset || t.window.at(i).done {
		return fmt.Errorf("%w: %d is done, but it is not open: it was never delivered, or was done before", ErrUnknownOffset,
			offset)
	}
	t.window.at(i).done = true
	t.open--
	for t.window.len > 0 && t.window.at(0).done {
		e := t.window.pop()
		t.commit = e.last + 1
		t.ahead -= e.messages
	}
	if t.window.len > 2*t.open+minRing {
		t.window.merge()
	}
	return nil
}

// find returns the place of offset in the window, or where it would stand. Most messages finish in order.
func (t *Tracker) find(offset int64) int {
	if t.window.len > 0 && t.window.at(0).offset == offset {
		return 0
	}
	return sort.Search(t.window.len, func(i int) bool { return t.window.at(i).offset >= offset })
}

// Committable returns the offset to commit: the one behind the last message of the finished prefix. ok is false until
// the first delivered message is done. The offset never goes back.
func (t *Tracker) Committable() (offset int64, ok bool) { return t.commit, t.commit > 0 }

// Ahead returns how many messages were delivered from the oldest open one on, finished ones included: what is delivered
// again if the partition is lost now. It is 0 if nothing is open.
func (t *Tracker) Ahead() int { return t.ahead }

// InFlight returns how many messages were delivered and are not done.
func (t *Tracker) InFlight() int { return t.open }

// Oldest returns the lowest offset that was delivered and is not done. ok is false if there is none.
func (t *Tracker) Oldest() (offset int64, ok bool) {
	if t.open == 0 {
		return 0, false
	}
	return t.window.at(0).offset, true
}
