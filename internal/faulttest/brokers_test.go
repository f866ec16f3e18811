package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers"
)

// readTimeout is how long a member waits for a broker that does not answer: so long it does not notice that one stands
// still.
const readTimeout = 12 * time.Second

// scene is two members on a topic, beside a plain group in the full form, before something is broken.
type scene struct {
	*world
	groups      []*group
	coordinator int
	controller  int
	began       time.Time
}

// lap logs how far the test has come.
func (s *scene) lap(what string) {
	s.t.Helper()
	s.t.Logf("%6.1f s %s", time.Since(s.began).Seconds(), what)
}

// A choice is of the node that coordinates the groups.
type choice func(s *scene) int

// onController is the node of the active controller, elsewhere another one.
func onController(s *scene) int { return s.controller }
func elsewhere(s *scene) int    { return other(s.controller) }

// atFirstAddress is the node whose address comes first: who asks one broker where the coordinator is, and always the
// same, asks it.
func atFirstAddress(s *scene) int { return s.cluster.Node(slices.Min(s.cluster.Addrs)) }

// setScene starts the members.
func setScene(t *testing.T, coordinator choice) *scene {
	t.Helper()
	s := &scene{began: time.Now(), world: newWorld(t)}
	s.lap("the backlog is there")
	s.controller = s.world.controller()
	s.coordinator = coordinator(s)
	s.groups = append(s.groups, s.newGroup(einmal, s.coordinator))
	if *full {
		s.groups = append(s.groups, s.newGroup(plain, s.coordinator))
	}
	for _, g := range s.groups {
		g.bothJoin()
	}
	s.look(2 * time.Second)
	t.Cleanup(s.restore)
	s.lap("all members are at work")
	return s
}

// restore brings all nodes back, whatever the test has left.
func (s *scene) restore() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := s.cluster.Restore(ctx); err != nil {
		s.t.Errorf("the cluster is not whole again: %v", err)
	}
	s.lap("the cluster is whole")
}

// look lets some time go by in which nothing is to happen.
func (s *scene) look(d time.Duration) { time.Sleep(d) }

// awaitResumed waits until every partition of every group is consumed.
func (s *scene) awaitResumed() {
	s.t.Helper()
	for _, g := range s.groups {
		eventually(s.t, 2*time.Minute, g.client+" consumes all partitions again",
			func() bool { return g.active(partitions, 500*time.Millisecond) })
	}
}

// end lets all be consumed, stops the members and judges them.
func (s *scene) end(e episode) {
	s.t.Helper()
	e.to = time.Now()
	s.lap("all is well again")
	s.finish(s.groups...)
	s.lap("all is consumed and committed")
	for _, g := range s.groups {
		g.stop()
	}
	s.lap("all members have stopped")
	for _, g := range s.groups {
		g.judge(e)
	}
}

// roles says what a node was, for the table.
func (s *scene) roles(node int) string {
	if node == s.controller {
		return "it had the active controller"
	}
	return "the active controller was elsewhere"
}

// killed kills a node, waits until consumption has resumed, and starts the node again.
func (s *scene) killed(node int) {
	s.t.Helper()
	must(s.t, s.cluster.Kill(node))
	s.look(3 * time.Second) // what is in memory
	s.awaitResumed()
	s.lap("all partitions are consumed after the kill")
	must(s.t, s.cluster.Start(s.t.Context(), node))
	s.lap("the node is back")
	s.look(2 * time.Second)
	s.awaitResumed()
	s.lap("all partitions are consumed after the restart")
}

func fencing() time.Duration { return current().brokerSession + current().margin }

func TestLeaderKilled(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	need(t)
	onlyFull(t)
	s := setScene(t, elsewhere)
	victim := other(s.coordinator, s.controller)
	e := episode{name: "SIGKILL leader, not coordinator", from: time.Now(), led: s.ledBy(victim), keepSessions: true,
		nothingAgain: true, gapLed: fencing(), gapOthers: current().calm, note: s.roles(victim)}
	s.killed(victim)
	s.end(e)
}

func TestCoordinatorKilled(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	need(t)
	onlyFull(t)
	//nolint:paralleltest // as above
	for name, coordinator := range map[string]choice{"with the controller": onController, "without it": elsewhere} {
		t.Run(name, func(t *testing.T) {
			s := setScene(t, coordinator)
			e := episode{name: "SIGKILL coordinator and leader", from: time.Now(), led: s.ledBy(s.coordinator),
				keepSessions: true, nothingAgain: true, gapLed: fencing(), gapOthers: current().calm, note: s.roles(s.coordinator)}
			s.killed(s.coordinator)
			s.end(e)
		})
	}
}

// A leader that is not the coordinator is killed and comes back, and then the coordinator.
func TestLeaderAndCoordinatorKilledInTurn(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	s := setScene(t, onController)
	first := other(s.coordinator)
	e := episode{name: "SIGKILL leader, restart, SIGKILL coordinator", from: time.Now(), keepSessions: true,
		nothingAgain: true, gapLed: fencing(), gapOthers: current().calm, note: "the coordinator had the active controller"}
	// leadership stays where the first kill has moved it to
	e.led = append(s.ledBy(first), s.ledBy(s.coordinator)...)
	s.killed(first)
	e.led = append(e.led, s.ledBy(s.coordinator)...)
	s.killed(s.coordinator)
	s.end(e)
}

// The coordinator stands still: nobody refuses a connection, nobody answers.
func TestCoordinatorFrozen(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	//nolint:paralleltest // as above
	for _, d := range current().freezes {
		t.Run(d.String(), func(t *testing.T) {
			s := setScene(t, atFirstAddress)
			s.frozen(s.coordinator, "SIGSTOP coordinator and leader", d)
		})
	}
}

func TestLeaderFrozen(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	need(t)
	onlyFull(t)
	s := setScene(t, elsewhere)
	s.frozen(other(s.coordinator, s.controller), "SIGSTOP leader, not coordinator", 20*time.Second)
}

// frozen freezes a node for some time.
func (s *scene) frozen(node int, name string, d time.Duration) {
	s.t.Helper()
	e := episode{
		name: fmt.Sprintf("%s, %v", name, d), from: time.Now(), led: s.ledBy(node), keepSessions: true, nothingAgain: true,
		gapLed: max(current().brokerSession, readTimeout) + current().margin, gapOthers: current().calm, note: s.roles(node),
	}
	must(s.t, s.cluster.Freeze(node))
	s.look(d)
	must(s.t, s.cluster.Thaw(node))
	s.look(2 * time.Second)
	s.awaitResumed()
	s.end(e)
}

func TestCoordinatorRestarted(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	need(t)
	onlyFull(t)
	s := setScene(t, elsewhere)
	e := episode{name: "SIGTERM coordinator, restart", from: time.Now(), led: s.ledBy(s.coordinator), keepSessions: true,
		nothingAgain: true, gapLed: fencing(), gapOthers: current().calm, note: s.roles(s.coordinator)}
	must(t, s.cluster.Terminate(s.coordinator))
	must(t, s.cluster.Start(t.Context(), s.coordinator))
	s.look(2 * time.Second)
	s.awaitResumed()
	s.end(e)
}

// All brokers are killed at once, and come back. Whether the sessions last is a matter of how long that takes.
func TestAllBrokersAway(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	s := setScene(t, elsewhere)
	e := episode{name: fmt.Sprintf("SIGKILL all, %v", current().down), from: time.Now(), led: []int32{0, 1, 2, 3, 4, 5}}
	must(t, s.cluster.KillAll())
	s.look(current().down)
	began := time.Now()
	must(t, s.cluster.Start(t.Context(), 1, 2, 3))
	back := time.Now()
	s.awaitResumed()
	e.gapLed = back.Sub(e.from) + fencing()
	e.note = fmt.Sprintf("the brokers answered %s after their start, %s after the fault", seconds(back.Sub(began)),
		seconds(back.Sub(e.from)))
	s.look(3 * time.Second)
	s.awaitResumed()
	s.end(e)
}

// One of three nodes stands still. Members that start then are ready soon when the cluster has given the node up. One
// that starts right after the fault is ready when the cluster lets it: the node may lead what it reads, coordinate its
// group, or replicate the group's state.
func TestStartBesideAFrozenNode(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	need(t)
	w := newWorld(t)
	for node := 1; node <= 3; node++ {
		must(t, w.cluster.Freeze(node))
		w.startSome(2, 2*time.Minute)
		eventually(t, 2*time.Minute, "its partitions have other leaders", func() bool { return !w.leads(node) })
		w.startSome(8, current().margin)
		must(t, w.cluster.Thaw(node))
		must(t, w.cluster.Settle(t.Context()))
	}
}

// startSome starts members of groups of their own, one after the other, each of which must be ready in time.
func (w *world) startSome(n int, within time.Duration) {
	w.t.Helper()
	for i := range n {
		var log servers.Output
		c, err := consumer.New(consumer.Config{
			Brokers: w.cluster.Addrs, Group: fmt.Sprintf("start-%s-%d-%d", w.id, i, time.Now().UnixNano()),
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Topics: map[string]consumer.Topic{w.topic: {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}},
		})
		must(w.t, err)
		ctx, cancel := context.WithCancel(w.t.Context())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- c.Run(ctx) }()
		eventually(w.t, 2*time.Minute, "it is ready",
			func() bool { return c.Ready() && len(c.Status().Partitions) == partitions })
		took := time.Since(began)
		w.t.Logf("ready after %v", took)
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		if took > within {
			w.t.Errorf("ready after %v, want %v:\n%s", took, within, log.String())
		}
	}
}

// leads reports whether a node leads partitions, or the nodes that answer do not tell.
func (w *world) leads(node int) bool {
	for p := range int32(partitions) {
		if leader, err := w.cluster.Leader(w.topic, p); err != nil || leader == node {
			return true
		}
	}
	return false
}
