package gather

import "github.com/einmal-go/einmal/dedupstore"

// picker chooses the members of a group.
type picker[Tx any] struct {
	size    int
	members []*call[Tx]
	picked  []*call[Tx] // members and twins
	byKey   map[dedupstore.Key]*call[Tx]
}

func (p *picker[Tx]) full() bool { return len(p.members) >= p.size }

// pickLane takes the calls of a lane from the first number on, as far as they have come. One of a number that has
// settled waits for nobody.
func (p *picker[Tx]) pickLane(next uint64, calls []*call[Tx]) {
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

// pick takes a call, as a member or as the twin of one, and reports whether it could. A group of one call has no twins:
// it runs as if there were no groups.
func (p *picker[Tx]) pick(c *call[Tx]) bool {
	first := p.byKey[c.key]
	switch {
	case first != nil && p.size > 1:
		first.twins = append(first.twins, c)
	case first != nil || p.full():
		return false
	default:
		p.member(c)
	}
	c.picked = true
	p.picked = append(p.picked, c)
	return true
}

func (p *picker[Tx]) member(c *call[Tx]) {
	if p.size > 1 {
		if p.byKey == nil {
			p.byKey = map[dedupstore.Key]*call[Tx]{}
		}
		p.byKey[c.key] = c
	}
	p.members = append(p.members, c)
}
