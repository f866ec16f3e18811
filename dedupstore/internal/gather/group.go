package gather

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/turn"
)

// errHangs stands for a function that goes on after its context has ended.
var errHangs = errors.New("the function does not return")

// group is one transaction of several calls. Its fields belong to its goroutine.
type group[Tx any] struct {
	g       *Gatherer[Tx]
	tx      Transaction[Tx]
	members []*call[Tx]
	fresh   []bool

	in   []int            // members that the commit answers for, in their order
	back []dedupstore.Key // records to be taken back
	rest []*call[Tx]      // members for whose functions no time was left

	spent time.Duration // by functions, one after the other
	runs  int           // of functions

	culprits []culprit[Tx]       // the members whose functions failed, in their order
	broken   map[*turn.Lane]bool // lanes of which a member did not run: those behind it must not either
}

// culprit is a member whose function failed.
type culprit[Tx any] struct {
	*call[Tx]
	err error
}

// run runs a group until everybody in it has an answer or waits again.
func (g *Gatherer[Tx]) run(members []*call[Tx]) {
	gr := &group[Tx]{g: g, members: members}
	keys := make([]dedupstore.Key, len(members))
	for i, c := range members {
		keys[i] = c.key
	}
	var err error
	if gr.tx, gr.fresh, err = g.backend.Begin(context.Background(), keys); err != nil {
		gr.failed(err)
		return
	}
	if gr.functions(); len(gr.culprits) > 0 {
		gr.failed(gr.culprits[0].err)
		return
	}
	if err := gr.tx.Commit(gr.back); err != nil {
		gr.tx.Rollback()
		gr.notCommitted(err)
		return
	}
	gr.tx.Rollback() // gives the connection back
	gr.committed()
}

// functions runs the functions of the fresh members: one after the other until one fails, or all at once.
func (gr *group[Tx]) functions() {
	began := time.Now()
	var running []*call[Tx] // at once
	for i, c := range gr.members {
		over := len(gr.in) > 0 && !gr.g.cfg.AtOnce && time.Since(began) >= gr.g.cfg.Span
		switch gr.next(i, over || c.turn != nil && gr.broken[c.lane()]) {
		case stepRun:
			c.events <- event[Tx]{tx: gr.tx, place: i}
			gr.in = append(gr.in, i)
			gr.runs++
			if gr.g.cfg.AtOnce {
				running = append(running, c)
			} else if gr.await(c); len(gr.culprits) > 0 {
				return
			}
		case stepDuplicate:
			gr.in = append(gr.in, i)
		case stepLate:
			gr.rest = append(gr.rest, c)
			gr.back = append(gr.back, c.key)
			gr.breaks(c)
		case stepLeft:
			if gr.fresh[i] {
				gr.back = append(gr.back, c.key)
			}
			gr.rest = append(gr.rest, c) // for its twins
			gr.breaks(c)
		}
	}
	gr.spent = time.Since(began)
	for _, c := range running {
		gr.await(c)
	}
}

// slowFunction is how long a function takes that waits for something else than a statement or two.
const slowFunction = time.Millisecond

// load is that of a group of which full says whether it had as many members as it could.
func (gr *group[Tx]) load(full bool) load {
	switch {
	case gr.runs > 1 && gr.spent >= time.Duration(gr.runs)*slowFunction:
		return loadSlow
	case full:
		return loadHigh
	}
	return loadLow
}

func (gr *group[Tx]) breaks(c *call[Tx]) {
	if c.turn == nil {
		return
	}
	if gr.broken == nil {
		gr.broken = map[*turn.Lane]bool{}
	}
	gr.broken[c.lane()] = true
}

// step is what becomes of a member when its turn has come.
type step int

const (
	stepRun       step = iota // its function runs
	stepDuplicate             // it was recorded before
	stepLate                  // the group has no time left
	stepLeft                  // its caller is gone
)

func (gr *group[Tx]) next(i int, late bool) step {
	gr.g.mu.Lock()
	defer gr.g.mu.Unlock()
	c := gr.members[i]
	switch {
	case c.state == ended:
		return stepLeft
	case !gr.fresh[i]:
		c.state = ran
		return stepDuplicate
	case late:
		return stepLate
	}
	c.state = running
	return stepRun
}

// await waits for c's function. A function that goes on after its context has ended is left behind.
func (gr *group[Tx]) await(c *call[Tx]) {
	var err error
	select {
	case err = <-c.results:
	case <-c.ctx.Done():
		err = gr.grace(c)
	}
	if err != nil {
		gr.culprits = append(gr.culprits, culprit[Tx]{c, err})
		return
	}
	gr.g.mu.Lock()
	c.state = ran
	gr.g.mu.Unlock()
}

func (gr *group[Tx]) grace(c *call[Tx]) error {
	grace := time.NewTimer(gr.g.cfg.Grace)
	defer grace.Stop()
	select {
	case err := <-c.results:
		return err
	case <-grace.C:
		gr.tx.Abandon()
		return errHangs
	}
}

// failed ends a group that is not committed.
func (gr *group[Tx]) failed(err error) {
	fault := OfCall
	switch {
	case errors.Is(err, errHangs): // its transaction is rolled back when the function has returned
	case errors.Is(err, errNotReturned):
		gr.tx.Rollback()
	default:
		if !gr.g.cfg.AtOnce || len(gr.culprits) == 0 {
			fault = gr.g.backend.Fault(err)
		}
		if gr.tx != nil && errors.Is(err, dedupstore.ErrTxEnded) {
			gr.tx.Ended(gr.notRun())
		}
		if gr.tx != nil {
			gr.tx.Rollback()
		}
	}
	switch {
	case fault == OfAll && len(gr.culprits) == 0:
		gr.all(err)
	case fault == OfNobody:
		gr.collide()
	default:
		gr.without()
	}
}

// collide has all members come again after a deadlock.
func (gr *group[Tx]) collide() {
	gr.g.end(func() {
		gr.g.contended()
		gr.g.count(rolledBack(dedupstore.GroupDeadlock))
		gr.g.again(gr.members)
	})
	gr.g.tell(rolledBack(dedupstore.GroupDeadlock))
}

func rolledBack(why dedupstore.GroupFailure) dedupstore.GroupResult {
	return dedupstore.GroupResult{Failed: why}
}

// why is why the group is rolled back.
func (gr *group[Tx]) why() dedupstore.GroupResult {
	switch {
	case len(gr.culprits) > 0:
		return rolledBack(dedupstore.GroupFunction)
	case gr.tx == nil:
		return rolledBack(dedupstore.GroupRecord)
	}
	return rolledBack(dedupstore.GroupCommit)
}

// notRun returns the keys that were recorded and whose functions have not run.
func (gr *group[Tx]) notRun() (keys []dedupstore.Key) {
	gr.g.mu.Lock()
	defer gr.g.mu.Unlock()
	for i, c := range gr.members {
		if gr.fresh[i] && c.state != ran && !gr.blamed(c) {
			keys = append(keys, c.key)
		}
	}
	return keys
}

func (gr *group[Tx]) blamed(c *call[Tx]) bool {
	return slices.ContainsFunc(gr.culprits, func(k culprit[Tx]) bool { return k.call == c })
}

// without answers the culprits and has all others come again. Of several in a lane only the first is answered, as if
// those behind it had not run: a function that did not return cannot come again.
func (gr *group[Tx]) without() {
	var guilty []culprit[Tx]
	gr.g.end(func() {
		gr.g.count(gr.why())
		gr.g.pace.halve(len(gr.members))
		for _, k := range gr.culprits {
			if k.turn != nil && gr.broken[k.lane()] && k.returned() {
				continue
			}
			gr.breaks(k.call)
			gr.g.pace.failed()
			k.state = ended // its twins come again, as calls of their own
			guilty = append(guilty, k)
		}
		gr.g.again(gr.members)
	})
	gr.g.tell(gr.why())
	for _, k := range guilty {
		if errors.Is(k.err, errHangs) {
			gr.leftBehind(k.call)
		} else {
			k.answer(false, k.err)
		}
	}
}

// returned reports whether the function has returned an error.
func (k culprit[Tx]) returned() bool {
	return !errors.Is(k.err, errHangs) && !errors.Is(k.err, errNotReturned)
}

// leftBehind waits for the function that hangs, somewhere else. Its caller waits with it, as without groups.
func (gr *group[Tx]) leftBehind(c *call[Tx]) {
	go func() {
		err := <-c.results
		gr.tx.Rollback()
		if err == nil {
			err = gr.g.backend.Waiting(c.ctx)
		}
		c.answer(false, err)
	}()
}

// all answers everybody with an error that everybody would meet.
func (gr *group[Tx]) all(err error) {
	var waiting []*call[Tx]
	gr.g.end(func() {
		for _, c := range gr.members {
			for _, c := range append([]*call[Tx]{c}, c.twins...) {
				if c.state != ended {
					c.state = ended
					waiting = append(waiting, c)
				}
			}
		}
	})
	for _, c := range waiting {
		c.answer(false, err)
	}
}

// notCommitted tells a commit that surely failed from one of which nobody knows.
func (gr *group[Tx]) notCommitted(err error) {
	if blame, ok := errors.AsType[*Blame](err); ok {
		err = blame.Err
		gr.culprits = append(gr.culprits, culprit[Tx]{gr.members[blame.Place], err})
	}
	switch gr.g.backend.Fault(err) {
	case OfAll:
		gr.answered(func() {}, func(int) (bool, error) { return false, err })
	case OfNobody:
		gr.collide()
	default:
		gr.without()
	}
}

func (gr *group[Tx]) committed() {
	gr.answered(func() {
		gr.g.count(gr.result())
		if !gr.g.cfg.AtOnce {
			gr.g.pace.took(gr.spent, gr.runs)
		}
		full := len(gr.members) >= gr.g.pace.members() || len(gr.rest) > 0
		if gr.g.pace.succeeded(len(gr.in), full, gr.load(full), time.Now()) {
			gr.g.changed(Eased)
		}
	}, func(i int) (bool, error) { return gr.fresh[i], nil })
	gr.g.tell(gr.result())
}

func (gr *group[Tx]) result() dedupstore.GroupResult {
	return dedupstore.GroupResult{Calls: len(gr.in)}
}

// answered answers the members that were in the commit and their twins, and has the rest come again.
func (gr *group[Tx]) answered(change func(), answer func(i int) (ran bool, err error)) {
	var answers []func()
	var settled []*turn.Turn
	settle := func(c *call[Tx], err error) {
		if err == nil && c.turn != nil {
			settled = append(settled, c.turn)
		}
	}
	gr.g.end(func() {
		change()
		for _, i := range gr.in {
			ran, err := answer(i)
			c := gr.members[i]
			c.state = ended
			settle(c, err)
			answers = append(answers, func() { c.answer(ran, err) })
			for _, twin := range c.twins {
				if twin.state != ended {
					twin.state = ended
					settle(twin, err)
					answers = append(answers, func() { twin.answer(false, err) })
				}
			}
			c.twins = nil
		}
		gr.g.again(gr.rest)
	})
	turn.SettleAll(settled)
	for _, answer := range answers {
		answer()
	}
}
