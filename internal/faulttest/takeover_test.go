package faulttest

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// setApart sets a scene in which A is a process of its own.
func setApart(t *testing.T) (*scene, map[*group]*child) {
	t.Helper()
	s := &scene{began: time.Now(), world: newWorld(t)}
	s.controller = s.world.controller()
	s.coordinator = elsewhere(s)
	clients := []string{einmal}
	if *full {
		clients = append(clients, plain)
	}
	children := map[*group]*child{}
	for _, client := range clients {
		g := s.newGroup(client, s.coordinator)
		s.groups = append(s.groups, g)
		children[g] = g.joinApart("A")
		g.join("B")
		g.awaitHalves()
	}
	s.look(2 * time.Second)
	return s, children
}

// sendA sends A a signal, and returns what A has.
func sendA(t *testing.T, children map[*group]*child, sig os.Signal) map[*group][]int32 {
	t.Helper()
	has := map[*group][]int32{}
	for g, c := range children {
		has[g] = g.owned("A")
		must(t, c.cmd.Process.Signal(sig))
	}
	return has
}

func (s *scene) awaitTakeover() {
	s.t.Helper()
	for _, g := range s.groups {
		eventually(s.t, 2*time.Minute, g.client+": B has all partitions",
			func() bool { return len(g.owned("B")) == partitions })
	}
}

// One of two members ends. From then on until the other one processes its partitions.
func TestMemberEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		signal       os.Signal
		within       time.Duration
		nothingAgain bool
	}{
		// it leaves the group; the other one learns of it with its next heartbeat, at most 1 s later
		{"SIGTERM", syscall.SIGTERM, time.Second, true},
		{"SIGKILL", syscall.SIGKILL, sessionTimeout, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, children := setApart(t)
			e := episode{
				name: test.name + " of one of two members", from: time.Now(), nothingAgain: test.nothingAgain,
				gapLed: test.within + current().margin, gapOthers: test.within + current().calm,
			}
			lost := sendA(t, children, test.signal)
			s.awaitTakeover()
			s.look(time.Second)
			s.awaitResumed()
			for g, c := range children {
				<-c.done
				if status := c.cmd.ProcessState; test.signal == syscall.SIGTERM && !status.Success() {
					t.Errorf("A of %s: %v", g.client, status)
				}
			}
			s.handedOver(e, lost, "A")
		})
	}
}

// One of two members stands still, as in a paused machine, until the other one has its partitions. When it goes on it
// does not know that it has lost them: it handles a few messages before a broker tells it.
func TestMemberFrozen(t *testing.T) {
	t.Parallel()
	s, children := setApart(t)
	e := episode{
		name: "SIGSTOP of one of two members", from: time.Now(), mayOverlap: partitions / 2 * perSecond,
		gapLed: sessionTimeout + current().margin, gapOthers: 2 * current().calm,
	}
	lost := sendA(t, children, syscall.SIGSTOP)
	s.awaitTakeover()
	s.look(5 * time.Second)
	sendA(t, children, syscall.SIGCONT)
	for _, g := range s.groups {
		g.awaitHalves()
	}
	s.awaitResumed()
	e.to = time.Now()
	sendA(t, children, syscall.SIGTERM)
	for _, c := range children {
		<-c.done
	}
	s.finish(s.groups...)
	s.handedOver(e, lost, "A")
}
