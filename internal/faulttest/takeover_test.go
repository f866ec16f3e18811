package faulttest

import (
	"os"
	"syscall"
	"testing"
	"time"
)

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
			s := &scene{began: time.Now(), world: newWorld(t)}
			s.controller = s.world.controller()
			s.coordinator = other(s.controller)
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
			e := episode{
				name: test.name + " of one of two members", from: time.Now(), nothingAgain: test.nothingAgain,
				gapLed: test.within + current().margin, gapOthers: test.within + current().calm,
			}
			lost := map[*group][]int32{}
			for g, c := range children {
				lost[g] = g.owned("A")
				must(t, c.cmd.Process.Signal(test.signal))
			}
			for _, g := range s.groups {
				eventually(t, 2*time.Minute, g.client+": B has all partitions", func() bool { return len(g.owned("B")) == partitions })
			}
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
