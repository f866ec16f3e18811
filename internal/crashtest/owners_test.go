package crashtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A process freezes inside its transaction, which holds the record. Its successor waits for the record until the server
// ends the frozen session, and goes on. When the frozen one comes to itself, its transaction is gone.
func TestFrozenOwner(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(inAll)
		o := w.member("first")
		o.Event, o.Gate, o.Idle = event5, true, 12*time.Second // in which the successor must have come, on a slow machine too
		first := start(t, o)
		first.Await(sayGate)
		first.Signal(syscall.SIGSTOP)
		second := start(t, w.member("second"))
		w.awaitLock(second)
		w.awaitAll()
		first.Signal(syscall.SIGCONT)
		first.Tell(hearGo)
		first.Stop()
		second.Stop()
		w.wantOnce()
		if by := w.by(); by != second.Name {
			t.Errorf("the effect is by %q, want the successor's", by)
		}
	})
}

// A process loses Kafka, but not the database, while it handles a message: its partition gets a second owner, both are
// alive, and both handle the message. The second waits for the first one's record, and then recognises it.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(inAll)
		o, successor := w.member("first"), w.member("second")
		o.Event, o.Gate, o.Rebalance, successor.Rebalance = event5, true, 2*time.Second, 2*time.Second
		first := start(t, o)
		first.Await(sayGate)
		first.Tell(hearFreeze)
		second := start(t, successor)
		w.awaitLock(second)
		first.Tell(hearGo)
		w.awaitAll()
		if by := w.by(); by != first.Name {
			t.Errorf("the effect is by %q, want the first one's", by)
		}
		if n := w.duplicates(event5); n == 0 {
			t.Error("no repetition was recognised")
		}
		first.Tell(hearHeal)
		first.Stop()
		second.Stop()
		w.wantOnce()
	})
}

// awaitLock waits until the process waits for a lock of another one.
func (w *world) awaitLock(p *process) {
	w.t.Helper()
	eventually(w.t, p.Name+" waits for a lock", func() bool {
		return query[int](w, `select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
			p.Name) > 0
	})
}
