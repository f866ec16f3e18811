package losttest

import (
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// The server crashes in the middle of the work of 16 workers for each store, and starts again.
func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := serverstest.Instance(t)
	must(t, server.Start(t.Context()))
	loads := newLoads(t, server, server.URL())
	ends := []func() error{
		server.Kill,
		func() error { server.Stop(servers.Immediate); return nil },
		server.KillPostmaster,
		func() error { server.Stop(servers.Fast); return nil },
	}
	start(loads)
	for i := range times(t, *crashes, "EINMAL_LOST_CRASHES", "4") {
		each(t, loads, "events are acknowledged", more(loads, 40, acked))
		noticed := more(loads, workers, failed)
		must(t, ends[i%len(ends)]())
		each(t, loads, "deliveries fail", noticed)
		must(t, server.Start(t.Context()))
	}
	each(t, loads, "events are acknowledged", more(loads, 40, acked))
	stop(t, loads)
	for _, l := range loads {
		l.wantOnce(t, server)
	}
}
