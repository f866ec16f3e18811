package servertest_test

import (
	"flag"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
)

var rounds = flag.Int("rounds", 20, "rounds of 20 concurrent requests with one key")

// Twenty requests with one key at once, by HTTP, until all have been answered by what the first one was.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	const clients = 20
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{})
	var fresh, replays, inProgress atomic.Int64
	for round := range *rounds {
		begin, all := make(chan struct{}), sync.WaitGroup{}
		for range clients {
			all.Go(func() {
				<-begin
				for again := false; ; again = true {
					switch r := s.post(fmt.Sprint(round)); {
					case r.StatusCode == http.StatusCreated && r.replayed():
						replays.Add(1)
						return
					case r.StatusCode == http.StatusCreated && r.Text == "done":
						fresh.Add(1)
						return
					case r.problem() != idempotency.ProblemInProgress:
						t.Errorf("answered %d %s", r.StatusCode, r.Text)
						return
					case !again:
						inProgress.Add(1)
					}
				}
			})
		}
		close(begin)
		all.Wait()
		if t.Failed() {
			return
		}
	}
	s.wantEffects(*rounds)
	if fresh.Load() != int64(*rounds) || replays.Load() != int64(*rounds*(clients-1)) {
		t.Errorf("%d requests ran and %d were replays, want %d and %d", fresh.Load(), replays.Load(), *rounds,
			*rounds*(clients-1))
	}
	t.Logf("%d rounds: %d effects; of the requests %d were told first that one was in progress", *rounds, s.effects(),
		inProgress.Load())
}
