// Package turn is the order in which messages that are in work side by side must take effect. The runner numbers the
// messages of a lane when it hands them out; a store that puts many of them into one transaction keeps to the numbers.
package turn

import (
	"context"
	"maps"
	"sync"
)

// Lane is a sequence of messages that take effect one after the other. The zero value is an empty one. It is safe for
// concurrent use.
type Lane struct {
	mu       sync.Mutex
	joined   uint64          // numbers that were given out
	next     uint64          // the first that is not settled
	settled  map[uint64]bool // those behind it
	watchers map[any]func()
}

// Turn is the place of a message in its lane.
type Turn struct {
	lane *Lane
	n    uint64
}

// Join gives out the next place.
func (l *Lane) Join() *Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &Turn{l, l.joined}
	l.joined++
	return t
}

// Next is the number of the first message that has not settled.
func (l *Lane) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Watch has f called whenever a message settles, until the lane is gone. One who watches twice is called once. f must
// not be called with a lock held that the caller of Settle may hold.
func (l *Lane) Watch(who any, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers == nil {
		l.watchers = map[any]func(){}
	}
	l.watchers[who] = f
}

// Lane returns the lane.
func (t *Turn) Lane() *Lane { return t.lane }

// First reports whether nothing stands before the message any more. A nil Turn is always first.
func (t *Turn) First() bool { return t == nil || t.n <= t.lane.Next() }

// Number is the place in the lane, from 0.
func (t *Turn) Number() uint64 { return t.n }

// Settle says that what stands behind need not wait for this message any more: it has taken effect, or will not. It may
// be said again.
func (t *Turn) Settle() { SettleAll([]*Turn{t}) }

// SettleAll settles several. Those who watch hear of it once, however many lanes have moved.
func SettleAll(turns []*Turn) {
	told := map[any]func(){}
	for _, t := range turns {
		if t.lane.settle(t.n) {
			t.lane.watching(told)
		}
	}
	for _, f := range told {
		f()
	}
}

func (l *Lane) settle(n uint64) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n < l.next || l.settled[n]:
		return false
	case n > l.next:
		if l.settled == nil {
			l.settled = map[uint64]bool{}
		}
		l.settled[n] = true
		return false // nobody may go on yet
	}
	for l.next++; l.settled[l.next]; l.next++ {
		delete(l.settled, l.next)
	}
	return true
}

// watching adds those who watch.
func (l *Lane) watching(all map[any]func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(all, l.watchers)
}

type contextKey struct{}

// With returns a context that carries t.
func With(ctx context.Context, t *Turn) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the turn that ctx carries, or nil.
func From(ctx context.Context) *Turn {
	t, _ := ctx.Value(contextKey{}).(*Turn)
	return t
}
