package gather

import (
	"cmp"
	"slices"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/turn"
)

// picker chooses the members of a group.
type picker[Tx any] struct {
	size    int
	members []*call[Tx]
	byKey   map[dedupstore.Key]*call[Tx]
	taken   map[*call[Tx]]bool
}

// pickFrom takes calls in the order in which they have come; those of a lane together, in the order of the lane, where the first of them
// has come: no lane waits behind those that come without an order.
func (p *picker[Tx]) pickFrom(queue []*call[Tx]) {
	inLane := map[*turn.Lane][]*call[Tx]{}
	for _, c := range queue {
		if l := c.lane(); l != nil {
			inLane[l] = append(inLane[l], c)
		}
	}
	for _, c := range queue {
		l := c.lane()
		switch {
		case len(p.members) >= p.size && len(inLane) == 0:
			return
		case l == nil:
			p.pick(c)
		default:
			p.pickLane(l.Next(), inLane[l])
			delete(inLane, l)
		}
	}
}

// pickLane takes the calls of a lane from the first number on, as far as they have come. One of a number that has settled waits for nobody.
func (p *picker[Tx]) pickLane(next uint64, calls []*call[Tx]) {
	slices.SortStableFunc(calls, func(a, b *call[Tx]) int { return cmp.Compare(a.turn.Number(), b.turn.Number()) })
	for i, c := range calls {
		again := i > 0 && calls[i-1].turn.Number() == c.turn.Number() // a message with several calls takes them one by one
		if again || c.turn.Number() > next || !p.pick(c) {
			return
		}
		if c.turn.Number() == next {
			next++
		}
	}
}

// pick takes a call, as a member or as the twin of one, and reports whether it could. A group of one call has no twins: it runs as
// if there were no groups.
func (p *picker[Tx]) pick(c *call[Tx]) bool {
	first := p.byKey[c.key]
	switch {
	case first != nil && p.size > 1:
		first.twins = append(first.twins, c)
	case first != nil || len(p.members) >= p.size:
		return false
	default:
		p.byKey[c.key] = c
		p.members = append(p.members, c)
	}
	p.taken[c] = true
	return true
}
