package relay_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
)

// B24: what a dead predecessor has claimed goes out before what came after it.
func TestTakeBackComesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	// a relay that claimed them, and died: its lease has expired, the claim of the rows by the clock has not
	b.MustExec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() + interval '1 hour'`)
	b.MustExec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select distinct bucket, 'dead', 1, now() - interval '1 second' from outbox_event`)
	b.insert("3", "4")
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2 3 4" {
		t.Error(got)
	}
	if s := r.Status(); s.Returned != 2 {
		t.Errorf("Status tells that %d rows were taken back", s.Returned)
	}
}

// A bucket that is leased is left alone, until the lease has expired.
func TestLeaseKeepsOthersOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1")
	b.MustExec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select bucket, 'other', 7, clock_timestamp() + interval '3 seconds' from outbox_event`)
	b.MustExec(`update outbox_event set status = 'PUBLISHING', claim_epoch = 7, claimed_until = clock_timestamp() + interval '3 seconds'`)
	b.insert("2")
	start(t, b.config(outbox.TwoPhase))
	eventually(t, "all are sent", func() bool {
		left, leased := b.rows("true"),
			tabletest.Value[bool](b.Fixture,
				"select exists (select from outbox_lease where owner = 'other' and leased_until > clock_timestamp())")
		if leased && left < 2 {
			t.Fatal("a row of a leased bucket was sent")
		}
		return left == 0
	})
	if got := b.topicHas(); got != "1 2" {
		t.Error(got)
	}
}

// A bucket that another relay leases after a poll has found it free is left alone: its lease, its epoch and its rows
// stay as they are.
func TestLeaseTakenBetweenPollAndClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1")
	taken := make(chan struct{})
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = leasing{b.db, sync.OnceFunc(func() {
		b.MustExec("update outbox_lease set owner = 'other', epoch = 7, leased_until = clock_timestamp() + interval '1 hour'")
		close(taken)
	})}
	r := start(t, cfg)
	<-taken
	other := "select count(*) from outbox_lease where owner = 'other' and epoch = 7 and leased_until > clock_timestamp()"
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
		if n := tabletest.Value[int](b.Fixture, other); n != outboxsql.Buckets ||
			b.rows("status = 'PENDING' and claims = 0") != 1 {
			t.Fatalf("%d leases are the other's still, %d rows wait", n, b.rows("status = 'PENDING'"))
		}
	}
	if r.Status().Published != 0 || b.topicHas() != "" {
		t.Error("a row of a leased bucket was sent")
	}
	b.MustExec("update outbox_lease set leased_until = '-infinity'")
	eventually(t, "it is sent when the lease is over", func() bool { return b.rows("true") == 0 })
}

// B10: a relay that was too slow marks nothing that is not its own any more, and tells.
func TestZombieMarksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = &hooked{Database: b.db, before: func(sql string) {
		if strings.Contains(sql, "delete from") {
			// the lease has expired meanwhile, and a successor has claimed the rows
			b.MustExec("update outbox_lease set epoch = epoch + 1, owner = 'successor', leased_until = clock_timestamp() + interval '2 seconds'")
			b.MustExec("update outbox_event set claim_epoch = claim_epoch + 1, claims = claims + 1, claimed_until = clock_timestamp() + interval '2 seconds'")
		}
	}, once: true}
	r := start(t, cfg)
	eventually(t, "Status tells of the lost lease", func() bool { return r.Status().LeaseLost == 3 })
	if r.Status().Published != 0 {
		t.Error("it counts them as published")
	}
	eventually(t, "all are sent again", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2 3 1 2 3" {
		t.Error(got)
	}
}

// Nor does it end the lease of its successor.
func TestZombieEndsNobodysLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1")
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = &hooked{Database: b.db, before: func(sql string) {
		if strings.Contains(sql, "delete from") {
			b.MustExec(`update outbox_lease set epoch = epoch + 1, owner = 'successor', leased_until = clock_timestamp() + interval '1 hour'
				where leased_until > clock_timestamp()`)
			b.MustExec("update outbox_event set claim_epoch = claim_epoch + 1, claims = claims + 1, claimed_until = clock_timestamp() + interval '1 hour'")
		}
	}, once: true}
	r := start(t, cfg)
	eventually(t, "Status tells of the lost lease", func() bool { return r.Status().LeaseLost == 1 })
	if n := tabletest.Value[int](b.Fixture,
		"select count(*) from outbox_lease where owner = 'successor' and leased_until > clock_timestamp()"); n != 1 {
		t.Errorf("%d leases of the successor", n)
	}
}
