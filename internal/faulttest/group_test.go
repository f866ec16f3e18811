package faulttest

import (
	"context"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
)

// group is a group of members of one client, and what they did.
type group struct {
	*journal
	w       *world
	name    string
	client  string // einmal or plain
	store   *memstore.Store
	members []*member // of this process
	apart   bool      // one is in a process of its own: then they share no store, and effects are not counted
}

func (w *world) newGroup(client string, coordinator int) *group {
	w.t.Helper()
	return &group{journal: newJournal(), w: w, name: w.group(client, coordinator), client: client, store: memstore.New()}
}

// bothJoin starts two members and waits until both have their half and deliver.
func (g *group) bothJoin() {
	g.w.t.Helper()
	g.join("A")
	g.join("B")
	g.awaitHalves()
}

func (g *group) awaitHalves() {
	g.w.t.Helper()
	eventually(g.w.t, time.Minute, g.client+": A and B have their halves", func() bool {
		return len(g.owned("A")) == partitions/2 && len(g.owned("B")) == partitions/2 && g.active(partitions, time.Second)
	})
}

// join starts a member, which is stopped at the end of the test at the latest.
func (g *group) join(name string) {
	t := g.w.t
	t.Helper()
	m := &member{
		name: name, brokers: g.w.cluster.Addrs, group: g.name, topic: g.w.topic, pace: &g.w.pace,
		journal: g.journal, store: g.store, network: newNetwork(), done: make(chan struct{}),
	}
	run, err := m.prepare(g.client)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = run(ctx)
	}()
	g.members = append(g.members, m)
	t.Cleanup(func() {
		m.network.heal()
		m.cancel()
		<-m.done
		if t.Failed() || *showLog {
			t.Logf("%s of %s logged\n%s", m.name, g.client, m.log.String())
		}
	})
}

// stopMargin is how long Run may take beyond DrainTimeout.
const stopMargin = 5 * time.Second

// stop ends the members.
func (g *group) stop() {
	t := g.w.t
	t.Helper()
	for _, m := range g.members {
		began := time.Now()
		m.cancel()
		<-m.done
		if m.err != nil {
			t.Errorf("%s of %s: Run returned %v", m.name, g.client, m.err)
		}
		if took := time.Since(began); g.client == einmal && took > consumer.DefaultDrainTimeout+stopMargin {
			t.Errorf("%s of %s: Run returned %v after its context had ended", m.name, g.client, took)
		}
	}
}
