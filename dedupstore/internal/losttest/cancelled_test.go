package losttest

import (
	"context"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers"
)

// cancelCase is a COMMIT that is cancelled while it waits for the replica, whereupon the primary is lost.
type cancelCase struct {
	name      string
	doNothing bool
	how       string // the function of the server with which it is cancelled
	answered  bool   // the server answers that COMMIT has succeeded
	skipped   bool   // the redelivery, before the failover, is acknowledged
}

var cancelCases = []cancelCase{
	{name: "upsert", how: "pg_terminate_backend"},
	{name: "do nothing", how: "pg_terminate_backend", doNothing: true, skipped: true},
	{name: "pg_cancel_backend", how: "pg_cancel_backend", answered: true},
}

// cancelled is a case with a store.
type cancelled struct {
	*cancelCase
	*load
}

// acknowledged reports whether the first delivery is.
func (c cancelled) acknowledged() bool { return c.answered && !c.kind.watches }

// lost reports whether the effect is gone although it was acknowledged.
func (c cancelled) lost() bool { return c.acknowledged() || c.skipped }

// What the upsert is for: a redelivery waits for the replica as its first delivery did. DO NOTHING takes the row for
// done that the replica does not have. And an administrator who has the server answer that a commit is done, which only
// a store that watches the warnings can know better.
//
//nolint:tparallel // the second group looks at what has become of the first
func TestCommitCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var all []cancelled
	for i := range cancelCases {
		for _, l := range newLoadsWith(t, p.primary, p.hosts(),
			sqlstore.Config{CommitTimeout: time.Second, DoNothing: cancelCases[i].doNothing}) {
			all = append(all, cancelled{&cancelCases[i], l})
		}
	}
	p.sever()
	cancelledEach(t, "before the failover", all, func(t *testing.T, c cancelled) { c.cancel(t, p.primary) })
	p.failOver()
	cancelledEach(t, "after the failover", all, func(t *testing.T, c cancelled) { c.settle(t, p.replica) })
}

// cancelledEach returns when f has, for all cases.
func cancelledEach(t *testing.T, when string, all []cancelled, f func(t *testing.T, c cancelled)) {
	t.Run(when, func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name+"/"+c.kind.name, func(t *testing.T) {
				t.Parallel()
				f(t, c)
			})
		}
	})
}

// cancel delivers, cancels the COMMIT, and delivers again.
func (c cancelled) cancel(t *testing.T, primary *servers.Instance) {
	patient := c.kind.open(t, c.in(primary.URL()), 2, sqlstore.Config{CommitTimeout: time.Minute, DoNothing: c.doNothing})
	type answer struct {
		ran bool
		err error
	}
	delivered := make(chan answer)
	go func() {
		ran, err := patient.once(context.Background(), c.key(), writing("effect"))
		delivered <- answer{ran, err}
	}()
	eventually(t, "COMMIT waits, and is cancelled", func() bool {
		return ask[int](t, primary, "select count("+c.how+"(pid)) "+waiting+" and application_name = $1", c.schema) == 1
	})
	got := <-delivered
	switch {
	case c.acknowledged() && (got.err != nil || !got.ran):
		t.Errorf("the delivery: %v, %v, want the server's answer that it is done", got.ran, got.err)
	case !c.acknowledged() && dedupstore.ClassOf(got.err) != dedupstore.OutcomeUnknown:
		t.Errorf("the delivery: %v, %v, want an unknown outcome", got.ran, got.err)
	}
	if n := ask[int](t, primary, "select count(*) from "+c.schema+".effect"); n != 1 {
		t.Errorf("%d effects are visible on the primary", n)
	}
	if c.acknowledged() {
		return // nobody delivers again
	}
	ran, err := c.store.once(t.Context(), c.key(), writing("effect"))
	switch {
	case c.skipped && (err != nil || ran):
		t.Errorf("the redelivery: %v, %v, want it to be skipped", ran, err)
	case !c.skipped && dedupstore.ClassOf(err) != dedupstore.OutcomeUnknown:
		t.Errorf("the redelivery: %v, %v, want it to wait for the replica too", ran, err)
	}
}

// settle delivers to the new primary what is not acknowledged.
func (c cancelled) settle(t *testing.T, primary *servers.Instance) {
	want := 0
	if !c.lost() {
		want = 1
		eventually(t, "the store finds the new primary", func() bool {
			ran, err := c.store.once(t.Context(), c.key(), writing("effect"))
			if err == nil && !ran {
				t.Error("it was skipped")
			}
			return err == nil
		})
	}
	if n := ask[int](t, primary, "select count(*) from "+c.schema+".effect"); n != want {
		t.Errorf("%d effects, want %d", n, want)
	}
}

func (c cancelled) key() dedupstore.Key { return dedupstore.Key{Consumer: "lost", Event: "event"} }
