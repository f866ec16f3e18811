package gather

// Stats counts what a Gatherer has done. Counts only grow.
type Stats struct {
	Transactions int64 // that were committed
	Calls        int64 // that they answered
	Halved       int64 // groups that were rolled back and came again smaller
	Size, Side   int   // most calls in the next group, most transactions side by side now
	Contended    bool  // groups are held small because of deadlocks
}

func (s *Stats) count(calls int) {
	s.Transactions++
	s.Calls += int64(calls)
}

// Stats returns what has been done so far.
func (g *Gatherer[Tx]) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Size, s.Side, s.Contended = g.pace.size, g.pace.side, g.pace.tight
	return s
}
