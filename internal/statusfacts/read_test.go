package statusfacts_test

import (
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/statusfacts"
)

// Sections of known kinds are read, one that cannot be takes nothing from the others, and the service's own may be
// anything.
func TestRead(t *testing.T) {
	t.Parallel()
	r, err := statusfacts.Read([]byte(`{"format": 1, "healthy": true, "sections": {
		"orders": {"value": {"kind": "consumer", "phase": "running", "partitions": [{"topic": "orders", "lag": null}]}},
		"odd":    {"value": {"kind": "consumer", "partitions": "many"}},
		"relay":  {"value": {"kind": "outbox", "backlog": 3, "fresh": true}},
		"dead":   {"value": {"kind": "dead_letters", "total": 2}},
		"tidy":   {"value": {"kind": "janitor", "sweeping": true}},
		"own":    {"value": [1, "x"]}, "silent": {"error": "no answer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Consumers["orders"]; c == nil || c.Phase != "running" || len(c.Partitions) != 1 ||
		c.Partitions[0].Lag != nil {
		t.Errorf("the consumer is %+v", c)
	}
	if r.Outboxes["relay"].Backlog != 3 || r.Dead["dead"].Total != 2 || !r.Janitors["tidy"].Sweeping {
		t.Errorf("%+v", r)
	}
	if len(r.Unreadable) != 1 || r.Unreadable["odd"] == nil || r.Consumers["odd"] != nil {
		t.Errorf("unreadable are %v", r.Unreadable)
	}
	if n := r.Outboxes["relay"].Count(3); n == nil || *n != 3 {
		t.Error("a fresh number is not told")
	}
	if (&statusfacts.Outbox{}).Count(3) != nil {
		t.Error("a number that is not fresh is told")
	}
}

// A message that was not due is open from then on.
func TestOpenFromWhenItWasDue(t *testing.T) {
	t.Parallel()
	fetched := time.Unix(1000, 0)
	due := fetched.Add(time.Minute)
	now := due.Add(5 * time.Second)
	for name, test := range map[string]struct {
		open    statusfacts.Open
		from    time.Time
		seconds float64
	}{
		"due at once": {statusfacts.Open{Since: fetched, Seconds: 65}, fetched, 65},
		"due later":   {statusfacts.Open{Since: fetched, Seconds: 65, Due: &due}, due, 5},
		"due before":  {statusfacts.Open{Since: due, Seconds: 5, Due: &fetched}, due, 5},
		"not due, yet": {statusfacts.Open{Since: fetched, Seconds: 65, Due: new(now.Add(time.Second))}, now.Add(time.Second),
			-1},
	} {
		if from, seconds := test.open.From(), test.open.OpenFor(now); !from.Equal(test.from) || seconds != test.seconds {
			t.Errorf("%s: from %v, for %v s, want %v, %v", name, from, seconds, test.from, test.seconds)
		}
	}
}
