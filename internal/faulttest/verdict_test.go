package faulttest

import (
	"slices"
	"time"
)

// episode is a fault, as its judge sees it.
type episode struct {
	name string
	from time.Time // when it began
	to   time.Time // when all was well again; from then on handlers may hurry
	led  []int32   // the partitions that it hit
	// keepSessions says that no session may end, nothingAgain that nothing may be delivered again.
	keepSessions, nothingAgain bool
	// What consumption may pause at most on the partitions that were hit, and on the others.
	gapLed, gapOthers time.Duration
	// mayOverlap is how many messages a member may handle after another one has their partitions.
	mayOverlap int
	note       string
}

// judge checks what holds after every fault, and writes the figures down. The group has been stopped.
func (g *group) judge(e episode) {
	g.w.t.Helper()
	deliveries, holds := g.snapshot()
	f := figures{fault: e.name, client: g.client, note: e.note, short: g.shortSessions()}
	for p := range int32(partitions) {
		gap := longestGap(deliveries[p], e.from, e.to)
		if slices.Contains(e.led, p) {
			f.gapLed = max(f.gapLed, gap)
		} else {
			f.gapOthers = max(f.gapOthers, gap)
		}
		repeated, first := again(deliveries[p])
		f.redelivered += len(repeated)
		for _, finished := range first {
			f.oldest = max(f.oldest, e.from.Sub(finished))
		}
		f.owners += len(twoOwners(deliveries[p], holds))
		f.lost += g.lost(p, deliveries[p])
	}
	for _, n := range sessionsEnded(holds, e.from, e.to) {
		f.sessions += n
	}
	if !g.apart {
		f.doubled, f.without = g.effectsNotOnce()
	}
	results.add(f)
	g.w.t.Log(f)
	if g.client == einmal {
		g.check(e, f)
	}
}

func (g *group) check(e episode, f figures) {
	t := g.w.t
	t.Helper()
	if f.lost > 0 {
		t.Errorf("%d acknowledged messages were not delivered", f.lost)
	}
	if f.doubled > 0 || f.without > 0 {
		t.Errorf("%d events took effect more than once, %d never", f.doubled, f.without)
	}
	if f.owners > e.mayOverlap {
		t.Errorf("%d messages were delivered by a member after another one had its partition, want %d at most", f.owners,
			e.mayOverlap)
	}
	if e.keepSessions && f.sessions > 0 {
		t.Errorf("%d sessions ended, want none", f.sessions)
	}
	if e.nothingAgain && f.redelivered > 0 {
		t.Errorf("%d messages were delivered again, want none", f.redelivered)
	}
	if f.oldest > commitInterval+commitMargin {
		t.Errorf("a message was delivered again that was finished %v before the fault: its offset should have been committed",
			f.oldest)
	}
	if f.gapLed > e.gapLed {
		t.Errorf("the partitions that were hit paused for %v, want %v at most", f.gapLed, e.gapLed)
	}
	if f.gapOthers > e.gapOthers {
		t.Errorf("the other partitions paused for %v, want %v at most", f.gapOthers, e.gapOthers)
	}
}

// lost are the messages of a partition that were acknowledged and not delivered.
func (g *group) lost(p int32, ds []delivery) int {
	seen := map[int64]bool{}
	for _, d := range ds {
		seen[d.Offset] = true
	}
	g.w.producer.mu.Lock()
	defer g.w.producer.mu.Unlock()
	lost := 0
	for _, offset := range g.w.acked[p] {
		if !seen[offset] {
			lost++
		}
	}
	return lost
}

// effectsNotOnce counts the events that took effect more than once, and those that were acknowledged and took none.
func (g *group) effectsNotOnce() (more, none int) {
	g.w.producer.mu.Lock()
	defer g.w.producer.mu.Unlock()
	g.journal.mu.Lock()
	defer g.journal.mu.Unlock()
	for _, n := range g.effects {
		if n > 1 {
			more++
		}
	}
	for id := range g.w.ids {
		if g.effects[id] == 0 {
			none++
		}
	}
	return more, none
}
