package console

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := newHistory()
	at := func(past time.Duration, lag, committed int64) *state {
		p := &partitionState{Topic: "orders", partitionFacts: &partitionFacts{Lag: known(lag), Committed: known(committed)}}
		return &state{At: now.Add(-past), Groups: []*groupState{{Name: "g", Partitions: []*partitionState{p}}}}
	}
	h.add(at(2*time.Hour, 9, 0)) // is forgotten
	h.add(at(40*time.Second, 4, 100))
	h.add(at(30*time.Second, 8, 200)) // 10/s
	h.add(at(20*time.Second, -1, -1)) // nobody knows: no point, and no rate until there are two again
	h.add(at(10*time.Second, 2, 700))
	if got := h.latest(rateKey("g", "orders"), now); got == nil || *got != 10 {
		t.Errorf("the rate is %v", got)
	}
	h.add(at(0, 0, 600)) // somebody has set the offset back
	var lags []float64
	for _, p := range h.of(lagKey("g", "orders")) {
		lags = append(lags, p.n)
	}
	if !slices.Equal(lags, []float64{4, 8, 2, 0}) {
		t.Errorf("the lags are %v", lags)
	}
	if n := len(h.of(rateKey("g", "orders"))); n != 1 {
		t.Errorf("there are %d rates", n)
	}
	if g := graphOf(h.of(lagKey("g", "orders")), now, historySpan, "lag", "messages"); g == nil || g.High != 8 ||
		g.Last != 0 || len(g.Lines) != 1 {
		t.Errorf("the graph is %+v", g)
	}
	for i := range 3 * maxLines {
		h.point(time.Duration(i).String(), now, 1)
	}
	if len(h.lines) > maxLines {
		t.Errorf("%d lines are kept", len(h.lines))
	}
}

// Run looks again and again, until its context ends.
func TestRun(t *testing.T) {
	t.Parallel()
	p := (&told{}).set("consumer", consumes(consumer.PartitionStatus{Lag: 7}))
	b, c := serving(t, Config{Every: time.Second, Processes: []Process{{Name: "one", Status: p}}})
	b.hasNot(b.get("", http.StatusOK), "<svg")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for len(c.history.of(lagKey("billing-service", "orders"))) < 2 {
		time.Sleep(20 * time.Millisecond)
	}
	b.has(b.get("", http.StatusOK), "<svg", `aria-label="lag of orders over the last 5 min: now 7`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
