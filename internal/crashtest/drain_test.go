package crashtest

import (
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// overdue are handlers that are still in work when the time to drain is over.
var overdue = []struct {
	name    string
	swallow bool
}{
	{"the handler returns the error", false},
	{"the handler returns nil", true},
}

// On shutdown, what has not finished in time is cancelled, rolled back, and left to the next process, whatever the
// handler says.
func TestShutdownCutsShort(t *testing.T) {
	t.Parallel()
	for _, c := range overdue {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				o := w.member("first")
				o.Event, o.Gate, o.Swallow, o.Drain = event5, true, c.swallow, 200*time.Millisecond
				first := start(t, o)
				first.Await(sayGate)
				first.Stop()
				w.goOn(first, "in the drain, cut short", false)
			})
		})
	}
}

// So it is in a rebalance.
func TestRebalanceCutsShort(t *testing.T) {
	t.Parallel()
	for _, c := range overdue {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				o := w.member("first")
				o.Event, o.Gate, o.Swallow = event5, true, c.swallow
				first := start(t, o)
				first.Await(sayGate)
				second := start(t, w.member("second"))
				eventually(t, "the transaction is rolled back", func() bool { return w.transaction(first.Name) == none })
				w.look()
				first.Tell(hearGo) // should it get the partition again
				w.awaitAll()
				first.Stop()
				second.Stop()
				w.wantOnce()
			})
		})
	}
}
