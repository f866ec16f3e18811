package audit

import (
	"context"
	"sync"
	"time"
)

// gatherer sorts what is read, keeps to the rate, and shows the progress. add, step and advance are safe for concurrent
// use.
type gatherer struct {
	sorter *sorter
	pace   *pace
	show   func(Progress) // nil for nobody

	mu       sync.Mutex
	added    int64
	progress Progress
	shown    time.Time
}

func newGatherer(dir string, rate float64, show func(Progress)) *gatherer {
	return &gatherer{sorter: newSorter(dir, sortBytes), pace: &pace{rate: rate, begun: time.Now()}, show: show}
}

func (g *gatherer) close() error { return g.sorter.close() }

// add keeps what was read of an id.
func (g *gatherer) add(ctx context.Context, id string, rest []byte) error {
	if err := g.pace.wait(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.added++
	g.advanceLocked(1)
	return g.sorter.add(id, rest)
}

// each calls f for all that was added, in the order of the ids. The bytes are f's until it returns.
func (g *gatherer) each(ctx context.Context, f func(id, rest []byte) error) error {
	g.step("comparing", g.added)
	return g.sorter.each(func(id, rest []byte) error {
		g.advance(1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return f(id, rest)
	})
}

// step begins a part of the work.
func (g *gatherer) step(name string, total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.progress, g.shown = Progress{Step: name, Total: total}, time.Time{}
	g.advanceLocked(0)
}

func (g *gatherer) advance(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advanceLocked(n)
}

const (
	progressEvery = 500 * time.Millisecond
	progressRows  = 1024 // between two looks at the clock
)

func (g *gatherer) advanceLocked(n int64) {
	g.progress.Done += n
	if g.show == nil || g.progress.Done%progressRows != 0 || time.Since(g.shown) < progressEvery {
		return
	}
	g.shown = time.Now()
	g.show(g.progress)
}

// pace keeps to a number of rows a second.
type pace struct {
	rate float64 // 0 for no limit

	mu    sync.Mutex
	begun time.Time
	taken int64
}

func (p *pace) wait(ctx context.Context) error {
	if p.rate <= 0 {
		return nil
	}
	p.mu.Lock()
	p.taken++
	delay := time.Until(p.begun.Add(time.Duration(float64(p.taken) / p.rate * float64(time.Second))))
	p.mu.Unlock()
	if delay < 10*time.Millisecond { // a timer for each row would be more work than the row
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}
