package losttest

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A database that acknowledges commits and loses them loses effects and records together: a replay from before the loss
// makes it good. That is what no store can prevent, and what the other tests show does not happen otherwise.
func TestDatabaseThatLosesCommits(t *testing.T) {
	t.Parallel()
	t.Run("asynchronous failover", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, "synchronous_standby_names=") // the last one that is said counts
		sever := func() {
			p.await("the replica has all", "select flush_lsn >= pg_current_wal_lsn() from pg_stat_replication")
			p.sever()
		}
		replays(t, p.primary, p.hosts(), sever, func() *servers.Instance {
			p.failOver()
			return p.replica
		})
	})
	t.Run("synchronous_commit=off", func(t *testing.T) {
		t.Parallel()
		server := serverstest.Instance(t, "synchronous_commit=off")
		must(t, server.Start(t.Context()))
		noWriter := func() { // what is there is durable, and nothing else is written
			ask[string](t, server, "select pg_switch_wal()::text")
			must(t, syscall.Kill(ask[int](t, server, "select pid from pg_stat_activity where backend_type = 'walwriter'"),
				syscall.SIGSTOP))
		}
		replays(t, server, server.URL(), noWriter, func() *servers.Instance {
			must(t, server.Kill())
			must(t, server.Start(t.Context()))
			return server
		})
	})
}

// replays delivers events before and after some moment, loses the database, and delivers all of them once more.
func replays(t *testing.T, primary *servers.Instance, hosts string, moment func(), lose func() *servers.Instance) {
	loads := newLoadsWith(t, primary, hosts, sqlstore.Config{})
	const events = 10
	deliver := func(when string, first bool) {
		for _, l := range loads {
			for n := range events {
				key := dedupstore.Key{Consumer: "lost", Event: fmt.Sprint(when, n)}
				if ran, err := l.store.once(context.Background(), key, writing(key.Event)); err != nil || ran != first {
					t.Errorf("%s: %s: %v, %v", l.kind.name, key, ran, err)
				}
			}
		}
	}
	count := func(i *servers.Instance, want int) {
		for _, l := range loads {
			db := pgtest.OpenEmpty(t, l.in(i.URL()))
			if effects, records := db.Effects(), recordsOf(db); effects != want || records != want {
				t.Errorf("%s: %d effects, %d records, want %d", l.kind.name, effects, records, want)
			}
		}
	}
	deliver("before", true)
	moment()
	deliver("after", true)
	count(primary, 2*events)

	server := lose()
	count(server, events)
	for _, l := range loads { // the pools find the server
		eventually(t, "the store answers", func() bool { return l.store.check(t.Context()) == nil })
	}
	deliver("before", false)
	deliver("after", true)
	count(server, 2*events)
}
