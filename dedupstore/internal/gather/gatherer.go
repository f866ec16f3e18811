package gather

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/turn"
)

// errNotReturned stands for a panic or runtime.Goexit, which go on by themselves.
var errNotReturned = errors.New("the function did not return")

// Config is what a Gatherer is told.
type Config struct {
	// Size is the most calls in a transaction, at least 2.
	Size int

	// Side is the most transactions side by side, at least 1: the connections that the store may hold.
	Side int

	// AtOnce has the functions of a group run side by side: they do not use its connection.
	AtOnce bool

	// Span is how long the functions of a group may run together; then it commits, and the rest is the next group. It
	// bounds how long locks are held, and how long a slow function delays others. It has no effect with AtOnce. Defaults
	// to 20 ms.
	Span time.Duration

	// Grace is how long a function may go on after its context has ended, before the other calls of its group are freed of
	// it. Defaults to 5 s.
	Grace time.Duration

	// Changed is told what becomes of groups. May be nil. It must not call the Gatherer.
	Changed func(Change)
}

// Change is what has become of groups.
type Change int

// The changes.
const (
	Contended Change = iota // groups are held small, because of deadlocks
	Eased                   // they are no longer
	Single                  // groups do not pay: calls have transactions of their own
	Gathering               // groups pay again
)

const (
	defaultSpan  = 20 * time.Millisecond
	defaultGrace = 5 * time.Second
)

// Gatherer gathers calls. It is safe for concurrent use.
type Gatherer[Tx any] struct {
	backend Backend[Tx]
	cfg     Config

	mu     sync.Mutex
	queue  queue[Tx]
	active int // transactions under way
	pace   pace
	stats  dedupstore.GroupStats
	watchers
}

// New returns a Gatherer.
func New[Tx any](backend Backend[Tx], cfg Config) *Gatherer[Tx] {
	if cfg.Span == 0 {
		cfg.Span = defaultSpan
	}
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	span := cfg.Span
	if cfg.AtOnce {
		span = 0
	}
	return &Gatherer[Tx]{backend: backend, cfg: cfg, pace: newPace(cfg.Size, cfg.Side, span)}
}

// Once is the store's Once.
func (g *Gatherer[Tx]) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, Tx) error) (ran bool,
	err error) {
	t := turn.From(ctx)
	if t != nil {
		t.Lane().Watch(g, g.poke)
	}
	g.mu.Lock()
	if g.queue.len() == 0 && g.active < g.pace.sides() && t.First() {
		g.active++
		g.mu.Unlock()
		return g.alone(ctx, key, fn)
	}
	c := newCall(ctx, key, fn)
	g.queue.push(c)
	if t.First() { // else it waits for another one's end, and that starts it
		g.start()
	}
	g.mu.Unlock()
	return g.follow(c)
}

// poke starts calls that may run now, because what they have waited for has settled.
func (g *Gatherer[Tx]) poke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start()
}

// follow does what the call's groups ask of its goroutine, until its answer.
func (g *Gatherer[Tx]) follow(c *call[Tx]) (ran bool, err error) {
	for {
		var e event[Tx]
		select {
		case e = <-c.events:
		case <-c.ctx.Done():
			if g.leave(c) {
				return false, g.backend.Waiting(c.ctx)
			}
			e = <-c.events
		}
		switch {
		case e.alone:
			return g.alone(c.ctx, c.key, c.fn)
		case e.tx != nil:
			c.run(e.tx, e.place)
		default:
			return e.ran, e.err
		}
	}
}

// leave takes a call out whose function does not run, and has not.
func (g *Gatherer[Tx]) leave(c *call[Tx]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case queued:
		// It may also wait as the twin of another call. Its group finds that it has ended.
		g.queue.remove(c)
	case member:
	default:
		return false
	}
	c.state = ended
	return true
}

// alone runs a call as if there were no groups. Its transaction has been counted.
func (g *Gatherer[Tx]) alone(ctx context.Context, key dedupstore.Key, fn func(context.Context, Tx) error) (ran bool,
	err error) {
	done := false
	var began, ended time.Time // the function
	defer func() {
		result := dedupstore.GroupResult{Calls: 1}
		g.end(func() {
			if !ended.IsZero() && !g.cfg.AtOnce {
				g.pace.took(ended.Sub(began), 1)
			}
			full, by := g.queue.len() > 0, loadLow
			if full || g.active > firstSide {
				by = loadHigh
			}
			switch {
			case !done:
				g.pace.failed()
			case err == nil:
				g.count(result)
				g.pace.succeeded(1, full, by, time.Now())
			case g.backend.Fault(err) == OfNobody:
				g.contended()
			case g.backend.Fault(err) == OfCall:
				g.pace.failed()
			}
		})
		if done && err == nil {
			g.tell(result)
		}
	}()
	ran, err = g.backend.Once(ctx, key, func(ctx context.Context, tx Tx) error {
		began = time.Now()
		defer func() { ended = time.Now() }()
		return fn(ctx, tx)
	})
	done = true
	if t := turn.From(ctx); t != nil && err == nil {
		defer t.Settle() // before the transaction is counted off, so that the next one has those behind it
	}
	return ran, err
}

// contended slows down after a deadlock.
func (g *Gatherer[Tx]) contended() {
	if g.pace.contended(time.Now()) {
		g.changed(Contended)
	}
}

func (g *Gatherer[Tx]) changed(c Change) {
	if g.cfg.Changed != nil {
		g.cfg.Changed(c)
	}
}

// end counts a transaction off and starts those that may begin now. change runs under the mutex.
func (g *Gatherer[Tx]) end(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	if single, changed := g.pace.decide(time.Now()); changed && single {
		g.changed(Single)
	} else if changed {
		g.changed(Gathering)
	}
	g.active--
	g.start()
}

// start begins transactions for the calls that may run, as many as may be side by side.
func (g *Gatherer[Tx]) start() {
	for g.active < g.pace.sides() && g.queue.len() > 0 {
		members := g.queue.pick(g.pace.members())
		if len(members) == 0 {
			return // all wait for their turn
		}
		g.active++
		if len(members) == 1 && len(members[0].twins) == 0 {
			members[0].state = running
			members[0].events <- event[Tx]{alone: true}
			continue
		}
		for _, c := range members {
			c.state = member
		}
		go g.run(members)
	}
}

// again puts calls back in front of the queue, in their order, each followed by its twins. Those that have left stay
// away, and those whose context has ended leave.
func (g *Gatherer[Tx]) again(calls []*call[Tx]) {
	var back []*call[Tx]
	for _, c := range calls {
		twins := c.twins
		c.twins = nil
		for _, c := range append([]*call[Tx]{c}, twins...) {
			switch {
			case c.state == ended:
			case c.ctx.Err() != nil: // its goroutine may wait for its answer alone, and its turn may never come
				c.state = ended
				c.answer(false, g.backend.Waiting(c.ctx))
			default:
				c.state = queued
				back = append(back, c)
			}
		}
	}
	g.queue.pushFront(back)
}
