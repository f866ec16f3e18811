package losttest

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore/internal/faultproxy"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// pair is a primary whose commits wait for its replica, unless its settings say otherwise, and what lies between them.
type pair struct {
	t                testing.TB
	primary, replica *servers.Instance
	link             *faultproxy.Proxy
}

func newPair(t testing.TB, settings ...string) *pair {
	t.Helper()
	p := &pair{t: t, primary: serverstest.Instance(t, append([]string{"synchronous_standby_names=replica"},
		settings...)...)}
	var err error
	p.link, err = faultproxy.Listen(t.Context(), p.primary.Addr())
	must(t, err)
	t.Cleanup(func() { _ = p.link.Close() })
	p.replica = serverstest.Replica(t, p.primary, p.link.Addr)
	must(t, p.primary.Start(t.Context()))
	must(t, p.replica.Start(t.Context()))
	p.await("the replica follows", `select exists (select from pg_stat_replication where state = 'streaming'
		and (sync_state = 'sync' or current_setting('synchronous_standby_names') = ''))`)
	return p
}

// hosts is the URL of both.
func (p *pair) hosts() string {
	return p.primary.Before(p.replica) + "&target_session_attrs=read-write"
}

// await asks the primary until it says yes.
func (p *pair) await(what, question string) {
	p.t.Helper()
	eventually(p.t, what, func() bool { return ask[bool](p.t, p.primary, question) })
}

// ask returns the only value that a query selects.
func ask[T any](t testing.TB, i *servers.Instance, sql string, args ...any) T {
	t.Helper()
	c, err := pgx.Connect(t.Context(), i.URL())
	must(t, err)
	defer c.Close(context.Background())
	rows, _ := c.Query(t.Context(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	must(t, err)
	return v
}

// sever cuts the replica off, and returns when the primary knows: whatever commits from then on waits for it.
func (p *pair) sever() {
	p.t.Helper()
	p.link.Sever()
	p.await("the replica is gone", "select not exists (select from pg_stat_replication)")
}

// failOver loses the primary and promotes the replica.
func (p *pair) failOver() {
	p.t.Helper()
	must(p.t, p.primary.Kill())
	must(p.t, p.replica.Promote(p.t.Context()))
}

// end makes room for another pair. What the test closes at its end may be closed before.
func (p *pair) end() {
	p.t.Helper()
	must(p.t, errors.Join(p.primary.Close(), p.replica.Close()))
}

// The primary dies in the middle of the work of 16 workers for each store, and its synchronous replica is promoted.
func TestFailsOver(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*pair, []*load){
		"primary killed": func(*pair, []*load) {},
		"primary killed while commits wait, some of them cancelled": cancelledWaits,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range times(t, *failovers, "EINMAL_LOST_FAILOVERS", "1") {
				p := newPair(t)
				loads := newLoads(t, p.primary, p.hosts())
				start(loads)
				each(t, loads, "events are acknowledged", more(loads, 40, acked))
				before(p, loads)
				p.failOver()
				each(t, loads, "events are acknowledged by the new primary", more(loads, 40, acked))
				stop(t, loads)
				for _, l := range loads {
					l.wantOnce(t, p.replica)
				}
				p.end()
			}
		})
	}
}

// waiting selects the sessions whose COMMIT waits for the replica.
const waiting = "from pg_stat_activity where wait_event = 'SyncRep'"

// cancelledWaits leaves transactions that are visible on the primary and not on the replica: their COMMIT was cut short
// while it waited, by the time-outs of the stores, and by an administrator who ends the sessions. None of these is
// acknowledged.
func cancelledWaits(p *pair, loads []*load) {
	p.t.Helper()
	p.sever()
	each(p.t, loads, "all workers wait", more(loads, workers, failed)) // what the replica had acknowledged is counted by now
	settled := map[*load]int64{}
	for _, l := range loads {
		settled[l] = acked(l)
	}
	p.await("commits wait, and are cancelled", "select count(pg_terminate_backend(pid)) > 0 "+waiting)
	each(p.t, loads, "deliveries fail", more(loads, workers, failed))
	each(p.t, loads, "effects are visible that are not acknowledged", func(l *load) bool {
		return ask[int64](p.t, p.primary, "select count(*) from "+l.schema+".effect") > acked(l)
	})
	for _, l := range loads {
		if n := acked(l); n != settled[l] {
			p.t.Errorf("%s: %d events were acknowledged, that the replica does not have", l.kind.name, n-settled[l])
		}
	}
}
