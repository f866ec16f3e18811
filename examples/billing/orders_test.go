package main

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestEventsRepeatBackToBackAndFarApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(1, 2000).Draw(t, "n"), rapid.Uint64().Draw(t, "seed")
		events := makeEvents(n, seed)
		if !reflect.DeepEqual(events, makeEvents(n, seed)) {
			t.Fatal("the same seed makes other events")
		}
		first := map[string]int{}
		backToBack, farApart := 0, 0
		for i, e := range events {
			at, repeated := first[e.id]
			switch {
			case !repeated:
				first[e.id] = i
			case events[at].order != e.order:
				t.Fatalf("event %s has two contents", e.id)
			case i-at <= 2: // a message that comes again from far may stand between the two
				backToBack++
			case i-at >= n/3:
				farApart++
			default:
				t.Fatalf("event %s comes again after %d of %d messages: neither at once nor much later", e.id, i-at, len(events))
			}
		}
		if len(first) != n || n >= 30 && (backToBack != (n+6)/10 || farApart != (n/2+2)/5) {
			t.Fatalf("%d orders, %d back to back, %d far apart", len(first), backToBack, farApart)
		}
		if prices := priceList(events); len(prices) != n || total(prices) < int64(n)*100 {
			t.Fatalf("%d orders for %d cents", len(prices), total(prices))
		}
	})
}

func TestPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		messages, kills := rapid.IntRange(1, 5000).Draw(t, "messages"), rapid.IntRange(0, 40).Draw(t, "kills")
		plan := makePlan(messages, kills, 2, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		count := map[deed]int{}
		before := 0
		for _, s := range plan {
			count[s.deed]++
			if s.messages < before || s.messages >= messages || s.worker < 0 || s.worker > 1 {
				t.Fatalf("step %+v after one at %d of %d messages", s, before, messages)
			}
			before = s.messages
		}
		if count[killAfterCommit] != (kills+1)/3 || count[kill]+count[killAfterCommit] != kills || count[terminate] != min(1, kills) {
			t.Fatalf("%d kills: %v", kills, count)
		}
	})
}

func TestAuditCountsWhatIsDoubledAndMissing(t *testing.T) {
	t.Parallel()
	prices := map[string]int64{"a": 100, "b": 200, "c": 300, "d": 400}
	for _, c := range []struct {
		name    string
		charges []charges
		want    figures
	}{
		{"all once", []charges{{"a", 1, 100}, {"b", 1, 200}, {"c", 1, 300}, {"d", 1, 400}}, figures{Charges: 4, Charged: 1000}},
		{"nothing", nil, figures{Missing: 4}},
		{"one three times, one never", []charges{{"a", 3, 300}, {"b", 1, 200}, {"d", 1, 400}}, figures{Charges: 5, Doubled: 2, Missing: 1, Charged: 900}},
		{"one that nobody sent", []charges{{"a", 1, 100}, {"b", 1, 200}, {"c", 1, 300}, {"d", 1, 400}, {"x", 1, 9}}, figures{Charges: 5, Doubled: 1, Charged: 1009}},
	} {
		var got figures
		got.count(c.charges, prices)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
