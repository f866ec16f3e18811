package faulttest

import (
	"testing"
	"time"
)

// sessionTimeout is einmal's: so long the group waits for a member that is silent.
const sessionTimeout = 20 * time.Second

// Connections break in the middle of fetches and of commits.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	for _, api := range []struct {
		name string
		key  int16
	}{{"fetch", apiFetch}, {"commit", apiOffsetCommit}} {
		t.Run(api.name, func(t *testing.T) {
			t.Parallel()
			s := setScene(t, elsewhere)
			e := episode{
				name: "connections cut in the middle of a " + api.name, from: time.Now(), led: all,
				keepSessions: true, nothingAgain: true, gapLed: current().calm,
			}
			for range current().cuts {
				for _, stage := range []stage{halfRequest, wholeOnly, halfAnswer} {
					s.cutOnce(api.key, stage)
					s.awaitResumed()
				}
			}
			s.look(3 * time.Second)
			s.awaitResumed()
			s.end(e)
		})
	}
}

var all = []int32{0, 1, 2, 3, 4, 5}

// cutOnce cuts a connection of each member.
func (s *scene) cutOnce(api int16, stage stage) {
	s.t.Helper()
	var cuts []<-chan struct{}
	for _, g := range s.groups {
		for _, m := range g.members {
			cuts = append(cuts, m.network.cutNext(api, stage))
		}
	}
	timeout := time.After(30 * time.Second)
	for _, cut := range cuts {
		select {
		case <-cut:
		case <-timeout:
			s.t.Fatalf("no request of kind %d in 30 s", api)
		}
	}
}

// One member alone cannot reach the coordinator, while the other one and the coordinator are well. It must have stopped
// before the other one owns its partitions.
func TestMemberCutOff(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]blockade{"refused": refused, "swallowed": swallowed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setScene(t, elsewhere)
			e := episode{name: "one member cut off from the coordinator, packets " + name, from: time.Now(),
				gapLed: sessionTimeout + current().margin, gapOthers: 2 * current().calm}
			lost := map[*group][]int32{}
			for _, g := range s.groups {
				lost[g] = g.owned("A")
				g.members[0].network.block(s.cluster.Addr(s.coordinator), how)
			}
			s.awaitTakeover()
			s.look(10 * time.Second) // would A go on?
			for _, g := range s.groups {
				g.members[0].network.heal()
			}
			for _, g := range s.groups {
				g.awaitHalves()
			}
			s.handedOver(e, lost, "A")
		})
	}
}

// handedOver is end, for partitions that went from one member to the other.
func (s *scene) handedOver(e episode, lost map[*group][]int32, from string) {
	s.t.Helper()
	if e.to.IsZero() {
		e.to = time.Now()
		s.finish(s.groups...)
	}
	for _, g := range s.groups {
		g.stop()
	}
	for _, g := range s.groups {
		e.led = lost[g]
		last, first, overlap := g.handover(from, lost[g], e.from)
		e.note = "its last delivery ended after " + seconds(last) + ", the other's first began after " + seconds(first)
		if g.client == einmal && overlap > 0 && e.mayOverlap == 0 {
			s.t.Errorf("the other member began with a partition %v before its last owner had ended", overlap)
		}
		g.judge(e)
	}
}

// handover tells, of the partitions that a member lost after a moment, how much later its last delivery ended on any of
// them, when the other member's first one began on the last of them, and by how much they overlapped. What it delivers
// when it has got them back does not count.
func (g *group) handover(from string, lost []int32, since time.Time) (last, first, overlap time.Duration) {
	byPartition, holds := g.snapshot()
	for _, p := range lost {
		var ended, began time.Time
		for _, d := range byPartition[p] {
			switch {
			case d.Began.Before(since) && d.Ended.Before(since):
			case d.Member != from && began.IsZero():
				began = d.Began
			case d.Member == from && !gotBetween(holds, d, since):
				ended = d.Ended
			}
		}
		if !ended.IsZero() {
			last = max(last, ended.Sub(since))
			overlap = max(overlap, ended.Sub(began))
		}
		first = max(first, began.Sub(since))
	}
	return last, first, overlap
}
