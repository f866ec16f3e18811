package consumer

import "github.com/einmal-go/einmal/internal/turn"

// lane is a list of messages that take effect one after the other.
//
// One of them is in work at a time, or a train: several in a row, where a link makes groups of them. Those of a train
// are in work side by side, and whatever puts their effects into transactions looks at their turns. A message that
// failed keeps its turn until it has finished: those behind it that are in work wait for it, no other one is handed
// out.
type lane struct {
	key         string
	first, last *item // not handed out
	out         int   // handed out and not finished
	parked      int   // of these
	again       *item // of these, parked ones that may run now, the oldest first

	order  *turn.Lane // of those in trains; nil before the first train
	turned bool       // those that are handed out have turns
	short  int        // the most of a train, since one of the lane has failed; 0 if there is no such bound
	good   int        // messages that have finished since it was set

	offered bool  // it stands among the lanes that are ready,
	at      int64 // with the message at this offset,
	seat    seat  // for this seat
}

// seat is what a message takes while it is in work. Those that wait behind another one have seats of their own: a
// message that takes long, or fails, may keep these, and never the workers of other lanes.
type seat int

const (
	worker seat = iota // nothing of its lane stands before it
	rider              // it is in work behind another one of its train
	seats
)

func (l *lane) push(it *item) {
	if l.first == nil {
		l.first, l.last = it, it
		return
	}
	l.last.next = it
	l.last = it
}

// empty reports whether no message stands in the lane.
func (l *lane) empty() bool { return l.first == nil && l.out == 0 }

// candidate returns the message that may be handled now, or nil, and the seat that it takes. length is the most that
// may be in work. One that has failed runs again when nothing stands before it: it would wait, with a worker that those
// before it may need.
func (l *lane) candidate(length int) (*item, seat) {
	switch {
	case l.again != nil && !l.again.waits():
		return l.again, worker
	case l.again != nil || l.first == nil || l.parked > 0:
		return nil, worker
	case l.out == 0:
		return l.first, worker
	case l.turned && l.out < l.most(length):
		return l.first, rider
	}
	return nil, worker
}

// next hands out the candidate, which there must be. A message that is alone in its lane needs no turn; those that come
// later wait for it.
func (l *lane) next(length int) *item {
	if it := l.again; it != nil {
		l.again, it.next = it.next, nil
		return it
	}
	it := l.first
	l.first, it.next = it.next, nil
	if l.first == nil {
		l.last = nil
	}
	if l.out == 0 {
		l.turned = l.first != nil && l.most(length) > 1
	}
	l.out++
	if l.turned {
		if l.order == nil {
			l.order = &turn.Lane{}
		}
		it.trainTurn = l.order.Join()
	}
	return it
}

// finished lets the message behind a running one take effect.
func (l *lane) finished(it *item, length int) {
	l.out--
	if it.trainTurn != nil {
		it.trainTurn.Settle()
	}
	l.succeeded(length)
}

// park says that a running message waits for its next attempt.
func (l *lane) park(length int) {
	l.parked++
	l.short, l.good = max(1, l.most(length)/2), 0
}

// unpark lets a message run again.
func (l *lane) unpark(it *item) {
	l.parked--
	at := &l.again
	for *at != nil && (*at).offset < it.offset {
		at = &(*at).next
	}
	it.next, *at = *at, it
}

// most is how many messages may be in work at once: few after a failure, as those behind a message that fails wait for
// it.
func (l *lane) most(length int) int {
	if l.short > 0 {
		return min(l.short, length)
	}
	return length
}

// succeeded lets trains grow again, to the double when as many have finished.
func (l *lane) succeeded(length int) {
	if l.short == 0 {
		return
	}
	if l.good++; l.good >= l.short {
		l.short, l.good = 2*l.short, 0
	}
	if l.short >= length {
		l.short = 0
	}
}
