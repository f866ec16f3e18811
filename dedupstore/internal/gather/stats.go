package gather

import (
	"maps"
	"slices"

	"github.com/einmal-go/einmal/dedupstore"
)

// watchers are those who are told of each transaction.
type watchers map[any]func(dedupstore.GroupResult)

// Watch implements dedupstore.GroupReporter.
func (g *Gatherer[Tx]) Watch(watcher any, f func(dedupstore.GroupResult)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watchers == nil {
		g.watchers = watchers{}
	}
	g.watchers[watcher] = f
}

// count notes what became of a transaction. The mutex is held; the watchers are told by tell, without it.
func (g *Gatherer[Tx]) count(result dedupstore.GroupResult) {
	if result.Failed != "" {
		g.stats.RolledBack++
	} else {
		g.stats.Transactions++
		g.stats.Calls += int64(result.Calls)
	}
}

func (g *Gatherer[Tx]) tell(result dedupstore.GroupResult) {
	g.mu.Lock()
	told := slices.Collect(maps.Values(g.watchers))
	g.mu.Unlock()
	for _, f := range told {
		f(result)
	}
}

// Stats returns what has been done so far.
func (g *Gatherer[Tx]) Stats() dedupstore.GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Size, s.Side, s.Contended, s.Single = g.pace.members(), g.pace.sides(), g.pace.tight, g.pace.single
	return s
}

// Waiting is how many calls are in no transaction.
func (g *Gatherer[Tx]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.len()
}
